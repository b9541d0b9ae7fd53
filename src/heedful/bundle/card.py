"""The model card: description, usage, scores, data, limits."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import heedful
from heedful import config


def model_card(
    model: config.ModelSettings,
    languages: tuple[str, str],
    parameters: int,
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    corpora: Sequence[str],
    pairs: int,
    fingerprint: str,
    max_tokens: int,
) -> str:
    """Return the text of README.md.

    `scores` are those of eval.json: {"test": {"bleu": {"value": 41.2, "signature": "nrefs:1|..."}}}.
    """
    codes = [code.replace("_", "-").split("-")[0].lower() for code in languages]
    lines = [
        f"- {corpus}: {name} {score['value']:.2f}, signature `{score['signature']}`"
        for corpus, metrics in scores.items()
        for name, score in metrics.items()
    ]
    if lines:
        lines += [
            "",
            "Scores apply to text like that of the corpus. Compare them only with scores of the same signature.",
        ]
    task = "text-classification" if model.decoder.kind == "labels" else "translation"
    description = describe_section(model.model_dump(exclude_defaults=True))
    return f"""---
language: {json.dumps(codes)}
library_name: heedful
pipeline_tag: {task}
tags: ["{task}", "heedful"]
---

# {languages[0]} to {languages[1]}

{parameters:,} weights: {description}. Made with heedful {heedful.__version__}.

```sh
heedful translate DIR        # where DIR is this directory
```

## Scores

{chr(10).join(lines) or "The model was not scored."}

## Data

{pairs:,} sentence pairs of {", ".join(corpora)}; fingerprint of the prepared corpus `{fingerprint}`.

## Limits

- It learned the words, topics and style of these pairs. Expect lower quality on other text; review important output.
- No training pair had more than {max_tokens:,} tokens per side. It translates sentence by sentence, without context.
- Fluent output may omit, repeat or invent content. Errors and bias of the data may reappear.
"""


def describe_section(tree: Mapping[str, Any]) -> str:
    """Return a section as one line: `width 128, encoder (kind transformer, layers 4, ...), ...`."""
    values = {
        key: f"({describe_section(value)})" if isinstance(value, Mapping) else value for key, value in tree.items()
    }
    return ", ".join(f"{key} {value}" for key, value in values.items())
