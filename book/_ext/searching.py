"""Search that opens the section with the answer: an index by section, and its script.

Sphinx's own index knows pages alone. This one has, for each section, its title, the words of its
prose, and what people type who mean it (`search_words.yml`); `search.js` ranks the sections.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

HERE = Path(__file__).parent
SCRIPT, DATA, WORDS = "search.js", "search_data.js", HERE / "search_words.yml"
TERMS = yaml.safe_load((HERE / "search_terms.yml").read_text(encoding="utf-8"))
# The same spelling for what is written in several ways; search.js does the same to what is typed.
SPELLINGS = [
    [r"\b(pre|post)[ -]?(?:ln|norm|layer ?norm)\b", "norm"],
    [
        r"\b(sync)(?:hroni[sz](?:e|ed|ing))?[ -]?(?:bn|batch[ -]?norm(?:ali[sz]ation)?)s?"
        r"(?: ?[123]d)?\b",
        "batchnorm",
    ],
    [
        r"\b(layer|batch|rms|group|instance|deep|qk|weight|scale|power)"
        r"[ -]?norm(?:ali[sz]ation)?s?(?: ?[123]d)?\b",
        "norm",
    ],
    [r"\b(rms|deep|scale)normalization\b", "norm"],
    [r"\b(n) ?[-−] ?1\b", "minus1"],
]
ALIASES = {
    "ln": ["layernorm"],
    "bn": ["batchnorm"],
    "gn": ["groupnorm"],
    "ics": ["internal", "covariate", "shift"],
    "eval": ["evaluation"],
    "fp16": ["float16"],
    "bf16": ["bfloat16"],
    "fp32": ["float32"],
    "syncbatchnorm": ["syncbatchnorm", "batchnorm"],
    "normalisation": ["normalization"],
}
# How much a hit on a page of a kind counts; the first prefix that fits is its kind.
KINDS = [
    ("book/api/", 0.25),
    ("book/solutions/", 0.3),
    ("book/zh/note", 0.5),
    ("book/zh/claims", 0.6),
    ("book/zh/", 1.0),
    ("book/notation", 0.4),
    ("book/zoo", 0.4),
    ("book/index", 0.5),
    ("book/pages", 0.2),
    ("book/references", 0.3),
    ("book/evidence", 0.3),
    ("book/claims", 0.4),
    ("book/interview", 0.5),
    ("book/teaching", 0.3),
    ("book/handout", 0.5),
    ("book/cheat_sheet", 0.7),
    ("book/pytorch_source", 0.8),
    ("book/", 1.0),
]
EXCERPT = 220  # letters
_stemmer = SearchEnglish({})
_CJK = re.compile(r"[\u3400-\u9fff]")


def weigh(docname: str) -> float:
    """How much a hit on this page counts."""
    weight = next((w for prefix, w in KINDS if docname.startswith(prefix)), 0.3)
    return 0.8 * weight if docname.endswith("_further") else weight


def tokenize(text: str) -> list[str]:
    """Stems of the words, without those that say nothing; pairs of letters of Chinese."""
    text = text.lower().replace("_", " ")
    for pattern, tail in SPELLINGS:
        text = re.sub(pattern, lambda m, t=tail: re.sub(r"\W", "", m[1]) + t, text)
    tokens: list[str] = []
    for word in re.findall(r"[^\W_]+", text):
        if _CJK.search(word):
            tokens += [word[k : k + 2] for k in range(len(word) - 1)]
            continue
        for part in ALIASES.get(word, [word]):
            if part not in _stemmer.stopwords and (len(part) > 1 or part.isdigit()):
                tokens.append(_stemmer.stem(part))
    return tokens


def read(node: nodes.Node) -> str:
    """Its text without the keys of citations, and formulas without TeX's backslashes."""
    if isinstance(node, addnodes.pending_xref) and node.get("refdomain") == "cite":
        return ""
    if isinstance(node, nodes.math):
        return re.sub(r"\\[,;! ]|[\\{}]", " ", node.astext())
    if isinstance(node, nodes.Text):
        return node.astext()
    return "".join(map(read, node.children))


def prose(section: nodes.Element) -> Iterator[str]:
    """Sentences, cells of tables and captions of a section, without those of its subsections."""
    for child in section.children:
        if isinstance(child, nodes.section | nodes.title | nodes.literal_block | nodes.comment):
            continue
        if isinstance(child, nodes.paragraph | nodes.caption | nodes.term | nodes.subtitle):
            yield read(child)
        elif isinstance(child, nodes.Element) and "cell_output" not in child.get("classes", []):
            yield from prose(child)


def choose_anchor(ids: list[str], labels: set[str]) -> str:
    """The anchor that an author gave, before one that was made from the title or counted."""
    named = [anchor for anchor in ids if not re.fullmatch(r"id\d+", anchor)] or ids
    return next((anchor for anchor in named if anchor in labels), named[0])


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Write the data of the search beside the built pages."""
    if error is not None or app.builder.name != "html":
        return
    extra = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    anonymous = app.env.get_domain("std").anonlabels.values()
    documents, sections, index = [], [], {}
    for docname in sorted(app.env.found_docs):
        document = app.env.get_doctree(docname)
        labels = {anchor for name, anchor in anonymous if name == docname}
        titled = [
            (section, child.astext())
            for section in document.findall(nodes.section)
            for child in section.children
            if isinstance(child, nodes.title)
        ]
        documents.append([docname, titled[0][1] if titled else docname, weigh(docname)])
        for section, title in titled:
            own = " ".join(" ".join(prose(section)).split())
            shown = own or " ".join(map(read, section.findall(nodes.paragraph))) or documents[-1][1]
            typed = ",".join(
                extra.pop(anchor, "") for anchor in labels.intersection(section["ids"])
            )
            for token, count in Counter(tokenize(own)).items():
                index.setdefault(token, []).extend((len(sections), count))
            phrases = [tokenize(phrase) for phrase in typed.split(",") if phrase.strip()]
            place = [len(documents) - 1, choose_anchor(section["ids"], labels)]
            sections.append(
                [
                    *place,
                    title,
                    textwrap.shorten(shown, EXCERPT, placeholder=" …"),
                    tokenize(title),
                    phrases,
                ]
            )
    if extra:
        raise ValueError(f"{WORDS.name}: no page has a section {', '.join(extra)}")
    data = {
        "documents": documents,
        "sections": sections,
        "index": index,
        "spellings": SPELLINGS,
        "aliases": ALIASES,
        "fillers": tokenize(TERMS["fillers"]),
        "synonyms": {tokenize(k)[0]: tokenize(v) for k, v in TERMS["synonyms"].items()},
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    target = Path(app.outdir) / "_static" / DATA
    target.write_text(f"const SECTIONS={text};\n", encoding="utf-8")


def add_script(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doc: Any
) -> None:
    """The page of the search loads its data and its script; no other page does."""
    if pagename == "search":
        for name in (DATA, SCRIPT):
            app.add_js_file(name, priority=900, loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
