"""The autopilot: every choice of its tables, the file it writes, and what it refuses."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.config import Settings, TokenizerSettings, load, parse_duration, parse_settings, read_recipe
from heedful.errors import ConfigError, DataError
from heedful.training import autopilot
from heedful.training.autopilot import (
    CORPUS_SCALES,
    MODEL_SIZES,
    CorpusFacts,
    Decision,
    ModelSize,
    TrainingSpeed,
    check_same_request,
    choose_dropout,
    choose_size,
    count_corpus,
    decide_training,
    decide_vocabulary,
    explained_decisions,
    format_duration,
    format_toml,
    merge_decisions,
)

MULTI30K, TATOEBA = CorpusFacts(29_000, 430_000), CorpusFacts(203_000, 1_900_000)
CORES = {"mini": 17_000, "tiny": 11_000, "small": 3_500, "base": 1_050, "big": 250}  # tokens per second of two
GPU = {"mini": 500_000, "tiny": 400_000, "small": 300_000, "base": 150_000, "big": 60_000}
MINUTE, HOUR = 60, 3600
BY_NAME = {size.name: size for size in MODEL_SIZES}


def asked(folder: Path | str = "/run", **train: object) -> Settings:
    """What a command line of two files gives."""
    tree = {
        "source": "en",
        "target": "de",
        "data": {"train": [{"files": ["a.en", "a.de"]}], "prepared_dir": "prepared"},
    }
    return parse_settings({**tree, "train": {"output_dir": ".", **train}}, root=Path(folder))


def chosen(facts: CorpusFacts, speeds: dict[str, int], time: float) -> ModelSize:
    return choose_size(facts, lambda size: TrainingSpeed(speeds[size.name], "bf16", "measured"), lambda: time)[0]


def values(choices: list[Decision]) -> dict[str, object]:
    return {one.key: one.value for one in choices}


# ------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("facts", "speeds", "time", "size"),
    [
        (CorpusFacts(1_000, 15_000), GPU, 10 * HOUR, "mini"),  # nothing larger could be filled
        (CorpusFacts(5_000, 79_000), CORES, 10 * MINUTE, "tiny"),
        (MULTI30K, CORES, 1 * MINUTE, "mini"),
        (MULTI30K, CORES, 10 * MINUTE, "tiny"),
        (MULTI30K, GPU, 10 * HOUR, "tiny"),  # published: larger is worse
        (TATOEBA, CORES, 10 * MINUTE, "tiny"),
        (TATOEBA, CORES, 2 * HOUR, "small"),
        (TATOEBA, GPU, 10 * HOUR, "small"),  # its sentences are short
        (CorpusFacts(200_000, 5_000_000), GPU, 1 * HOUR, "base"),
        (CorpusFacts(4_500_000, 126_000_000), CORES, 1 * HOUR, "small"),
        (CorpusFacts(4_500_000, 126_000_000), GPU, 10 * MINUTE, "base"),
        (CorpusFacts(4_500_000, 126_000_000), GPU, 10 * HOUR, "big"),
    ],
)
def test_the_size(facts, speeds, time, size):
    assert chosen(facts, speeds, time).name == size


def test_what_cannot_win_is_not_measured():
    tried = []

    def meter(size: ModelSize) -> TrainingSpeed:
        tried.append(size.name)
        return TrainingSpeed(CORES[size.name], "bf16", "")

    choose_size(TATOEBA, meter, lambda: 10 * MINUTE)
    assert tried == ["mini", "tiny"]  # at tiny's speed, small would not see enough


@settings(deadline=None)
@given(st.integers(500, 10**8), st.integers(2, 60), st.floats(10, 1e6), st.floats(1, 100))
def test_more_time_never_makes_it_smaller(pairs, length, time, more):
    facts = CorpusFacts(pairs, pairs * length)
    order = [size.name for size in MODEL_SIZES]
    assert order.index(chosen(facts, CORES, time).name) <= order.index(chosen(facts, CORES, more * time).name)


@pytest.mark.parametrize(("smaller", "larger"), [("mini", "tiny"), ("tiny", "small"), ("small", "base")])
def test_one_token_per_weight_is_where_the_law_of_scaling_says(smaller, larger):
    """loss = A / weights^0.34 + B / tokens^0.28: the time at which two sizes are equal, found by bisection."""

    def loss(name: str, time: float) -> float:
        return 406.4 / BY_NAME[name].weights ** 0.34 + 410.7 / (CORES[name] * time) ** 0.28

    early, late = 1.0, 1e9
    for _ in range(100):
        middle = (early * late) ** 0.5
        early, late = (early, middle) if loss(larger, middle) < loss(smaller, middle) else (middle, late)
    assert 0.5 <= CORES[larger] * early / BY_NAME[larger].weights <= 2


def test_weights_are_those_of_the_model():
    from heedful.build import build

    for size in MODEL_SIZES[:3]:
        made = build(merge_decisions(autopilot.decide_model(asked(), size, 0.1), asked()).model, 100, 100)
        matrices = sum(weight.numel() for weight in made.parameters() if weight.ndim == 2) - 100 * size.width
        assert matrices == size.weights


def test_two_vocabularies_have_two_tables():
    apart = asked().model_copy(update={"tokenizer": TokenizerSettings(shared=False)})
    tied = {
        values(autopilot.decide_model(given, MODEL_SIZES[0], 0.1))["model.tie_embeddings"] for given in (asked(), apart)
    }
    assert tied == {"all", "target"}


def test_tiny_and_base_are_the_recipes():
    for name in ("tiny", "base"):
        size, model = BY_NAME[name], read_recipe(f"transformer-{name}")["model"]
        assert (size.width, size.layers, size.feedforward_size, size.heads) == (
            model["width"], model["encoder"]["layers"], model["encoder"]["feedforward_size"], model["encoder"]["heads"],
        )  # fmt: skip


# -------------------------------------------------------------------------------------------------- what follows


def choices_for(facts: CorpusFacts, size: str, time: float | None = None, tokens: int | None = None, **train: object):
    given = asked(**({"time": f"{time}s"} if time else {}), **train)
    return decide_training(
        given,
        facts,
        BY_NAME[size],
        TrainingSpeed(tokens or CORES[size], "bf16", "measured"),
        time or autopilot.DEFAULT_MAX_SECONDS,
    )


@pytest.mark.parametrize(
    ("facts", "size", "time", "dropout"),
    [
        (CorpusFacts(5_000, 79_000), "tiny", 10 * MINUTE, 0.2),
        (MULTI30K, "tiny", 1 * HOUR, 0.2),
        (MULTI30K, "tiny", 10 * MINUTE, 0.2),
        (TATOEBA, "tiny", 10 * MINUTE, 0.0),  # each pair is seen less than three times
        (CorpusFacts(4_500_000, 126_000_000), "tiny", 1000 * HOUR, 0.0),  # it could not learn them by heart
    ],
)
def test_dropout(facts, size, time, dropout):
    found = values(choices_for(facts, size, time))
    assert [found[f"model.{part}dropout"] for part in ("", "encoder.", "decoder.")] == [dropout] * 3


def test_dropout_says_which_of_the_two_reasons_it_was():
    big = CorpusFacts(4_500_000, 126_000_000)
    assert choose_dropout(BY_NAME["tiny"], TATOEBA, 2.5) == (0.0, "each pair is seen 2.5 times")
    assert choose_dropout(BY_NAME["base"], big, 50) == (0.1, "there are 2.9 tokens of text for each weight")
    assert choose_dropout(BY_NAME["base"], big, 50, 0.2)[0] == 0.1  # never more because of the third
    few = CorpusFacts(5_000, 79_000)
    assert choose_dropout(BY_NAME["tiny"], few, 60, 0.2) == (
        0.2,
        "each pair is seen 60 times, but its words are re-segmented",
    )


@settings(deadline=None)
@given(st.integers(500, 10**8), st.sampled_from(MODEL_SIZES), st.floats(60, 1e6), st.floats(1e2, 1e6))
def test_what_follows_is_within_its_bounds(pairs, size, time, speed):
    found = values(choices_for(CorpusFacts(pairs, 15 * pairs), size.name, time, speed))
    batch, steps = found["train.batch_tokens"], autopilot.STEP_TIME_SHARE * time * speed / found["train.batch_tokens"]
    assert 1024 <= batch <= size.max_batch_tokens
    assert batch == 1024 or steps >= autopilot.MIN_UPDATES
    assert 1 <= found["train.warmup_steps"] <= 400
    assert found["train.warmup_steps"] <= max(1, autopilot.WARMUP_SHARE * steps)
    assert 0.5 <= found["train.ema"] <= 0.999
    assert 0 < found["train.learning_rate"] < 0.01
    assert "train.steps" not in found  # the clock says


@pytest.mark.parametrize(("train", "ranks", "parts"), [({}, 1, 1), ({}, 16, 16), ({"exact": True}, 1, 4)])
def test_each_part_of_a_batch_has_room_for_the_longest_pair(train, ranks, parts):
    found = decide_training(
        asked(time="60s", **train), MULTI30K, MODEL_SIZES[0], TrainingSpeed(1_000.0, "bf16", ""), 60.0, ranks
    )
    assert values(found)["train.batch_tokens"] // parts >= 512 + 2


def test_without_a_time_it_says_how_long_and_stops_early():
    found = {one.key: one for one in choices_for(MULTI30K, "tiny")}
    assert found["train.steps"].value == 80 * 430_000 // 4096
    assert found["train.steps"].reason.startswith("80 passes over 29,000 pairs, about 1h6m; --time")
    assert found["train.patience"].value == 6
    longer = {one.key: one for one in choices_for(TATOEBA, "small")}["train.steps"]
    assert "about 3h;" in longer.reason  # not forty passes


@pytest.mark.parametrize(
    ("minutes", "dropout", "regularization"), [(2, 0.2, None), (5, 0.3, None), (10, 0.2, 0.05), (40, 0.3, 0.1)]
)
def test_many_passes_cut_words_anew(minutes, dropout, regularization):
    found = values(choices_for(CorpusFacts(5_000, 79_000), "tiny", minutes * MINUTE))
    assert found["model.dropout"] == dropout
    assert found.get("tokenizer.subword_regularization") == regularization


@pytest.mark.parametrize("tokenizer", [{"kind": "words"}, {"subword_regularization": 0.0}])
def test_words_that_are_not_cut_anew_need_all_the_dropout(tokenizer):
    given = parse_settings(
        {**autopilot.explicit_settings(asked(time="10m")), "tokenizer": tokenizer}, root=Path("/run")
    )
    found = values(
        decide_training(
            given, CorpusFacts(5_000, 79_000), BY_NAME["tiny"], TrainingSpeed(CORES["tiny"], "bf16", ""), 10 * MINUTE
        )
    )
    assert found["model.dropout"] == 0.3
    assert "tokenizer.subword_regularization" not in found


def test_steps_that_were_requested_are_kept():
    given = asked(steps=300)
    choices = decide_training(given, MULTI30K, BY_NAME["tiny"], TrainingSpeed(11_000, "fp32", "x"), 3600.0)
    assert values(choices)["train.warmup_steps"] == 60
    assert merge_decisions([Decision("tokenizer.vocab_size", 500), *choices], given).train.steps == 300


def test_the_vocabulary():
    assert [decide_vocabulary(scale.min_pairs, 100).value for scale in CORPUS_SCALES] == [
        scale.vocab_size for scale in CORPUS_SCALES
    ]
    many = decide_vocabulary(5_000, 3_000)  # Chinese
    assert many.value == 7_000
    assert "3,000 different letters" in many.reason
    assert "a million pairs or more" in decide_vocabulary(autopilot.MAX_COUNTED_PAIRS, 100).reason


@settings(deadline=None)
@given(st.floats(1, 1e6))
def test_a_time_is_said_as_it_may_be_given(duration):
    assert duration <= parse_duration(format_duration(duration)) <= duration + 60


# ------------------------------------------------------------------------------------------------------------ the file


@settings(max_examples=30, deadline=None)
@given(st.integers(500, 10**7), st.sampled_from(MODEL_SIZES), st.sampled_from([None, 60, 3600]), st.booleans())
def test_the_file_is_what_was_chosen(tmp_path_factory, pairs, size, time, extra):
    folder = tmp_path_factory.mktemp("run")
    given = asked(folder, **({"time": f"{time}s"} if time else {}), **({"batch_tokens": 3000} if extra else {}))
    found = decide_training(
        given, CorpusFacts(pairs, 15 * pairs), size, TrainingSpeed(9_000.0, "bf16", "measured"), time or 3600.0
    )
    choices = [decide_vocabulary(pairs, 100), *found]
    (folder / "autopilot.toml").write_text(format_toml(choices, given), encoding="utf-8")
    kept = load(folder / "autopilot.toml")
    assert kept == merge_decisions(choices, given)
    assert kept.train.output_dir == folder.as_posix()
    check_same_request(given, folder / "autopilot.toml")


def test_every_reason_stands_beside_its_value_and_what_was_said_wins(tmp_path):
    given = asked(tmp_path, time="600s", batch_tokens=3000)
    choices = [
        decide_vocabulary(29_000, 100),
        *decide_training(given, MULTI30K, MODEL_SIZES[1], TrainingSpeed(9_000.0, "bf16", "measured"), 600.0),
    ]
    lines = format_toml(choices, given).splitlines()
    reasons = explained_decisions(choices, given)
    assert len(reasons) >= 8
    for one in reasons:
        (line,) = [line for line in lines if line.endswith(f"# {one.reason}")]
        assert line.startswith(f"{one.key.split('.')[-1]} = ")
    assert "batch_tokens = 3000" in lines  # no reason of ours
    assert "train.batch_tokens" not in {one.key for one in reasons}


def test_another_command_is_refused_with_what_differs(tmp_path):
    given = asked(tmp_path, time="600s")
    (tmp_path / "autopilot.toml").write_text(format_toml([decide_vocabulary(900, 90)], given), encoding="utf-8")
    differs = r"(?s)was written for another command:.*train\.log_every: None in the file, 5 now.*--out.*autopilot.toml"
    with pytest.raises(ConfigError, match=differs):
        check_same_request(asked(tmp_path, time="600s", log_every=5), tmp_path / "autopilot.toml")
    check_same_request(asked(tmp_path, time="900s"), tmp_path / "autopilot.toml")  # a run may be made longer


# ------------------------------------------------------------------------------------------------------- from the files


def write_corpus(folder: Path, pairs: int, words: str = "abcdefghijklmnopq") -> None:
    for code, some in (("en", words), ("de", words[::-1].upper())):
        rows = [[(number * step) % len(some) for step in range(1, 4 + number % 7)] for number in range(1, pairs + 1)]
        lines = [" ".join(some[at] * 2 for at in row) + f" {number}" for number, row in enumerate(rows)]
        (folder / f"train.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def files_of(folder: Path) -> Settings:
    data = {"train": [{"files": "train"}]}
    return parse_settings({"source": "en", "target": "de", "data": data}, root=folder)


def test_counting(tmp_path, monkeypatch):
    write_corpus(tmp_path, 700)
    assert count_corpus(files_of(tmp_path)) == (700, 2 * 17 + 10 + 1)  # letters, digits and the space
    monkeypatch.setattr(autopilot, "MAX_COUNTED_PAIRS", 600)  # the rest does not matter
    assert count_corpus(files_of(tmp_path))[0] >= 600


def test_rare_letters_are_not_counted(tmp_path):
    write_corpus(tmp_path, 700)
    text = (tmp_path / "train.en").read_text("utf-8")
    (tmp_path / "train.en").write_text("é" + text, encoding="utf-8", newline="\n")
    assert count_corpus(files_of(tmp_path))[1] == 45


def test_too_few_pairs_are_refused_in_words(tmp_path):
    write_corpus(tmp_path, 30)
    with pytest.raises(DataError, match=r"30 pairs are too few: the autopilot needs 500.*--recipe"):
        count_corpus(files_of(tmp_path))


run = CliRunner().invoke


@pytest.fixture(scope="module")
def flown(tmp_path_factory):
    """One flight, by the command line; every test looks at another side of it."""
    folder = tmp_path_factory.mktemp("flight")
    write_corpus(folder, 600)
    command = ["train", *(str(folder / f"train.{code}") for code in ("en", "de")), "--out", str(folder / "run")]
    command += ["--steps", "4", "--set", "train.validate_pairs=4", "--set", "train.threads=1"]
    return folder / "run", command, run(app, command)


@pytest.mark.slow
def test_files_alone_make_a_model(flown):
    folder, _, shown = flown
    assert shown.exit_code == 0, (shown.output, shown.exception)
    assert (folder / "model" / "model.safetensors").is_file()
    told_by = [line for line in shown.output.splitlines() if "autopilot: " in line]
    assert any("tokenizer.vocab_size = 1000 (600 pairs: " in line for line in told_by)
    assert any("model.width = 128 (size mini, " in line for line in told_by)


def test_what_is_trained_is_what_the_file_says(flown):
    folder, _, _ = flown
    resolved, file = load(folder / "heedful.toml"), load(folder / "autopilot.toml")
    assert resolved.model == file.model
    assert resolved.tokenizer == file.tokenizer
    said = file.train.model_dump(exclude_unset=True)
    assert {key: getattr(resolved.train, key) for key in said} == said
    requested = json.loads((folder / "requested.json").read_text("utf-8"))
    assert requested["train.learning_rate"] == file.train.learning_rate


def test_the_same_command_goes_on_with_the_file_and_so_does_the_file_alone(flown):
    folder, command, _ = flown
    before = (folder / "autopilot.toml").read_bytes()
    again = run(app, command)
    assert again.exit_code == 0, (again.output, again.exception)
    assert "autopilot: continuing with" in again.output
    alone = run(app, ["train", str(folder / "autopilot.toml")])
    assert alone.exit_code == 0, (alone.output, alone.exception)
    assert (folder / "autopilot.toml").read_bytes() == before


def test_more_steps_continue_the_run(flown):
    folder, command, _ = flown
    longer = run(app, ["5" if word == "4" else word for word in command])
    assert longer.exit_code == 0, (longer.output, longer.exception)
    assert (folder / "step-00000005").is_dir()


def test_a_time_that_is_too_short_says_what_is_possible(tmp_path):
    write_corpus(tmp_path, 600)
    files = [str(tmp_path / f"train.{code}") for code in ("en", "de")]
    shown = run(app, ["train", *files, "--out", str(tmp_path / "run"), "--time", "1s", "--set", "train.threads=1"])
    assert isinstance(shown.exception, ConfigError)
    assert "the time limit is too short" in str(shown.exception)
    assert "Use --time" in str(shown.exception)
    assert not (tmp_path / "run" / "autopilot.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["here.en", "here.de"], "--out my-model"),
        (["here.en", "a.de"], "there is no file a.de"),
        (["heedful.toml", "a.en", "a.de", "--out", "x"], "pass only the .toml, or only the files"),
        (["a.en", "a.de", "--out", "x", "--recipe", "transformer-tinny"], "did you mean `transformer-tiny`?"),
        (["a.en", "a.de", "--out", "x", "--time", "soon"], "a time is written like 90s, 40m"),
        (["a.en", "a.de", "--out", "x", "--time", "1h", "--steps", "3"], "--time or --steps, not both"),
        (["a.tsv.en", "--out", "x"], "--pair en-de"),
        (
            ["a.en", "--out", "x", "--from", "m", "--recipe", "sample"],
            "--from and --recipe cannot be combined: --from uses",
        ),
        (["a.en", "a.de", "--out", "x", "--set", "model.width=8"], "the autopilot chooses all of [model]"),
        (["a.en", "a.de", "--out", "x"], "there is no file"),
    ],
)
def test_misuse_is_answered_in_words(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("here.en", "here.de"):
        (tmp_path / name).write_text("a\n")
    shown = run(app, ["train", *arguments])
    assert isinstance(shown.exception, ConfigError | DataError)
    assert says in str(shown.exception)
