"""Before a new run: `heedful check` examines its corpora, so that a faulty corpus costs seconds and not a training."""

from heedful.config import Settings, name_corpora
from heedful.corpus.check import MAX_EXAMINED_BYTES, examine_corpora, make_report
from heedful.corpus.findings import Finding
from heedful.corpus.readers import resolve_files
from heedful.corpus.repair import can_repair
from heedful.data.prepare import ProgressCallback, StageProgress
from heedful.errors import DataError
from heedful.training.events import EventHandler, Note


def check_before_training(settings: Settings, on_event: EventHandler, progress: ProgressCallback) -> None:
    """Raise a DataError if `heedful check` finds errors that `heedful prepare` does not repair."""
    languages = (settings.source, settings.target)
    paths = {path for _, _, corpus in name_corpora(settings) for path in resolve_files(corpus.files, *languages)}
    num_bytes = sum(path.stat().st_size for path in paths)
    if num_bytes > MAX_EXAMINED_BYTES:
        on_event(Note(f"the corpora ({num_bytes / 1e9:,.1f} GB) are too large to examine now: run heedful check"))
        return
    pairs_read = 0

    def count_pairs(pairs: int) -> None:
        nonlocal pairs_read
        pairs_read += pairs
        progress(StageProgress("check", 0, 1, pairs_read))

    progress(StageProgress("check", 0, 1, 0))
    report = make_report(settings, examine_corpora(settings, count_pairs))
    progress(StageProgress("check", 1, 1, pairs_read))
    errors = [each for each in report.findings if each.level == "error" and not is_expected(each.kind, settings)]
    if errors:
        lines = "\n".join(f"  {describe_finding(finding)}" for finding in errors)
        repair = " (--fix writes a repaired copy)" if can_repair(settings) else ""
        raise DataError(
            f"heedful check found errors in the corpus:\n{lines}\nSee them with heedful check{repair}, or train on the "
            "corpus as it is with --force"
        )
    if report.findings:
        levels = [finding.level for finding in report.findings]
        on_event(
            Note(f"heedful check found no errors: {levels.count('warning')} warnings, {levels.count('note')} notes")
        )


def is_expected(kind: str, settings: Settings) -> bool:
    """Whether `heedful prepare` drops the rows of a finding, or the settings say that training may have them."""
    if settings.clean.overlap == "keep":
        return kind in ("overlap", "picture_overlap", "recording_overlap")
    return kind == "overlap"


def describe_finding(finding: Finding) -> str:
    """One line: what, how often, where, and what to do."""
    where = f"{finding.file}:{finding.lines[0]}" if finding.file and len(finding.lines) else finding.corpus
    detail = f" ({finding.detail})" if finding.detail else ""
    return f"{finding.rule.what}: {finding.count:,} ({finding.share:.1%}), first at {where}{detail}. {finding.rule.fix}"
