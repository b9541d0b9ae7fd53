"""heedful.toml: its keys, loaded and validated.

    settings = load("heedful.toml", assignments=["tokenizer.vocab_size=4000"])

The format is TOML because YAML reads Norwegian's `no` as False and `1e-4` as a string. `to_toml` writes the resolved
settings.
"""

from heedful.config.load import (
    SPLITS,
    as_settings,
    assign,
    find_recipes,
    load,
    merge_trees,
    name_corpora,
    parse_settings,
    parse_value,
    read_recipe,
)
from heedful.config.renamed import RENAMED_KEYS
from heedful.config.settings import (
    LANGUAGE_PATTERN,
    AttentionSettings,
    CleanSettings,
    CorpusSettings,
    CTCSettings,
    DataSettings,
    ImageInputSettings,
    InputSettings,
    Language,
    ModelSettings,
    NoInputSettings,
    NothingSettings,
    PatchesSettings,
    PositiveInt,
    RecurrentDecoderSettings,
    RecurrentSettings,
    SampledSettings,
    Section,
    Settings,
    Tag,
    TextInputSettings,
    TokenizerSettings,
    TrainSettings,
    TransformerSettings,
    parse_duration,
)
from heedful.config.toml import to_toml

__all__ = [
    "LANGUAGE_PATTERN",
    "RENAMED_KEYS",
    "SPLITS",
    "AttentionSettings",
    "CTCSettings",
    "CleanSettings",
    "CorpusSettings",
    "DataSettings",
    "ImageInputSettings",
    "InputSettings",
    "Language",
    "ModelSettings",
    "NoInputSettings",
    "NothingSettings",
    "PatchesSettings",
    "PositiveInt",
    "RecurrentDecoderSettings",
    "RecurrentSettings",
    "SampledSettings",
    "Section",
    "Settings",
    "Tag",
    "TextInputSettings",
    "TokenizerSettings",
    "TrainSettings",
    "TransformerSettings",
    "as_settings",
    "assign",
    "find_recipes",
    "load",
    "merge_trees",
    "name_corpora",
    "parse_duration",
    "parse_settings",
    "parse_value",
    "read_recipe",
    "to_toml",
]
