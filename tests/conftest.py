import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from support.browser_pages import BROWSER, FLAGS

# A shell makes a job in the background deaf to Ctrl-C, and with it all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The tensors of tests are small: a second thread gains nothing, and loses much when another process is busy.
torch.set_num_threads(1)

# Property tests check results, not time: a busy machine must not fail them.
settings.register_profile("heedful", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("heedful")

# What measures time, kills processes or starts a cluster has the machine to itself; the rest shares it (scripts/check).
ALONE = ("serve", "faults", "test_shards.py", "test_corpus.py", "test_bulk.py", "test_deploy.py", "test_clock.py")
# What takes minutes begins first, else one worker is still at it when the other has nothing left to do.
LONG = ("learn", "test_shell_blocks.py", "test_first_ten.py", "test_notebooks.py", "test_site.py", "importers")
# What takes longest and has shorter siblings that find most of what it finds: for `scripts/check --all`, every night.
NIGHTLY = (
    "tests/faults/test_ranks.py::test_runs_that_are_not_exact_survive_too[fsdp]",
    "tests/inspection/test_page.py::test_all_panels_show_one_cell_after_any_actions[1]",
    "tests/inspection/test_page.py::test_all_panels_show_one_cell_after_any_actions[2]",
    "tests/inspection/test_page.py::test_axe_finds_no_violation[dark-pt]",
    "tests/inspection/test_page.py::test_nothing_overlaps_in_quiz_and_lecture[1024]",
    "tests/inspection/test_page.py::test_nothing_overlaps_in_quiz_and_lecture[1920]",
    "tests/inspection/test_page.py::test_nothing_overlaps_or_is_cut_off[1024]",
    "tests/inspection/test_page.py::test_nothing_overlaps_or_is_cut_off[1920]",
    "tests/inspection/test_pictures.py::test_axe_finds_no_violation[dark-pt]",
    "tests/inspection/test_pictures.py::test_axe_finds_no_violation[projector-ru]",
    "tests/inspection/test_pictures.py::test_pages_of_pictures_and_language_models_fit[wide]",
    "tests/inspection/test_what_if.py::test_axe_finds_no_violation[dark-pt]",
    "tests/inspection/test_what_if.py::test_axe_finds_no_violation[projector-ru]",
    "tests/inspection/test_what_if.py::test_nothing_overlaps[1024]",
    "tests/inspection/test_what_if.py::test_nothing_overlaps[1920]",
    "tests/learn/test_learn.py::test_unseen_sequences_are_answered_exactly[gru+bilinear-copy]",
    "tests/learn/test_learn.py::test_unseen_sequences_are_answered_exactly[lstm+additive-sort]",
    "tests/serve/test_storm.py::test_attacks",
    "tests/serve/test_storm.py::test_load_and_faults_with_three_models[serve_faults.py]",
    "tests/serve/test_storm.py::test_load_and_faults_with_three_models[serve_overload.py]",
    "tests/serve/test_storm.py::test_ten_times_overload_for_a_minute",
    "tests/serve/test_storm.py::test_two_models_together",
    "tests/test_first_ten.py::test_the_storyline",
    "tests/test_notebooks.py::test_a_notebook_runs_from_top_to_bottom[decoding-strategies]",
    "tests/test_notebooks.py::test_a_notebook_runs_from_top_to_bottom[rnn-against-transformer]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/export.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/alignment.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/back-translate.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/compare.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/fine-tune.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/language-model.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/guide/speech.md]",
    "tests/test_shell_blocks.py::test_every_line_runs[docs/lab.md]",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid in NIGHTLY:
            item.add_marker("nightly")
        if not set(ALONE).isdisjoint(item.path.parts):
            item.add_marker("alone")
    items.sort(key=lambda item: next((at for at, long in enumerate(LONG) if long in item.path.parts), len(LONG)))


@pytest.fixture(scope="module")
def chromium():
    """A real browser."""
    if BROWSER is None:
        pytest.skip("no chromium here")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'heedful[dev]'"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()
