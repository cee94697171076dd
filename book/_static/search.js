// Ranks sections, and opens the one that answers: Sphinx's own search ranks pages.
// The data are in search_data.js, which book/_ext/searching.py writes; both cut words alike.
"use strict";

let stemmer;
const WEIGHTS = { title: 8, typed: 12, page: 2, text: 2, first: 1.2 };
const SHOWN = 30;

const tokenize = (text) => {
  stemmer ??= new Stemmer();
  let line = text.toLowerCase();
  for (const [pattern, tail] of SECTIONS.spellings)
    line = line.replace(new RegExp(pattern, "gu"), (_, start) => start.replace(/\W/gu, "") + tail);
  const tokens = [];
  for (const word of line.match(/[\p{L}\p{N}]+/gu) || []) {
    if (/[\u3400-\u9fff]/u.test(word)) {
      for (let k = 0; k < Math.max(1, word.length - 1); k++) tokens.push(word.slice(k, k + 2));
      continue;
    }
    for (const part of SECTIONS.aliases[word] || [word])
      if (!stopwords.includes(part) && (part.length > 1 || /^\d$/.test(part)))
        tokens.push(stemmer.stemWord(part));
  }
  return tokens;
};

// By section: how often each token stands in its text. A token that no section has is dropped.
const rank = (query) => {
  const known = (token) =>
    Object.hasOwn(SECTIONS.index, token) ||
    SECTIONS.sections.some(([, , , , title, typed]) => title.includes(token) || typed.flat().includes(token));
  const tokens = [...new Set(tokenize(query))].filter(known);
  const total = SECTIONS.sections.length;
  const found = new Map();
  let all = 0;
  for (const token of tokens) {
    const counts = new Map();
    const list = Object.hasOwn(SECTIONS.index, token) ? SECTIONS.index[token] : [];
    for (let k = 0; k < list.length; k += 2) counts.set(list[k], list[k + 1]);
    const hits = SECTIONS.sections.map(([doc, , , , title, typed], k) => {
      const page = SECTIONS.documents[doc].tokens ??= tokenize(SECTIONS.documents[doc][1]);
      const inTitle = title.includes(token) ? 1 / Math.sqrt(Math.max(1, title.length / tokens.length)) : 0;
      const count = counts.get(k) || 0;
      const phrases = typed.filter((phrase) => phrase.includes(token));
      const share = Math.max(0, ...phrases.map((phrase) => phrase.filter((t) => tokens.includes(t)).length / phrase.length));
      return (
        WEIGHTS.title * inTitle +
        WEIGHTS.typed * share ** 2 +
        WEIGHTS.page * page.includes(token) +
        (WEIGHTS.text * count) / (count + 1.5)
      );
    });
    const having = hits.filter((hit) => hit > 0).length;
    if (!having) continue;
    const rarity = Math.log(1 + (total - having + 0.5) / (having + 0.5));
    all += rarity;
    hits.forEach((hit, k) => {
      if (!hit) return;
      const entry = found.get(k) || { score: 0, covered: 0 };
      entry.score += rarity * hit;
      entry.covered += rarity;
      found.set(k, entry);
    });
  }
  return [...found]
    .map(([k, { score, covered }]) => {
      const [doc, , title] = SECTIONS.sections[k];
      const [, page, weight] = SECTIONS.documents[doc];
      const first = title === page ? WEIGHTS.first : 1;
      return [k, score * weight * first * (covered / all) ** 1.5];
    })
    .sort((a, b) => b[1] - a[1])
    .slice(0, SHOWN);
};

const show = (query) => {
  const results = rank(query);
  for (const [k, score] of results) {
    const [doc, anchor, title, excerpt] = SECTIONS.sections[k];
    const [name, page] = SECTIONS.documents[doc];
    const item = document.createElement("li");
    const link = item.appendChild(document.createElement("a"));
    link.href = `${name}.html#${anchor}`;
    link.dataset.score = score.toFixed(2);
    link.textContent = title === page ? title : `${title} (${page})`;
    const text = item.appendChild(document.createElement("p"));
    text.className = "context";
    text.textContent = excerpt;
    Search.output.appendChild(item);
  }
  Search.stopPulse();
  document.getElementById("search-progress")?.replaceChildren();
  Search.title.innerText = "Search results";
  Search.status.innerText = results.length
    ? `${results.length} sections, the best first`
    : "0 sections have any of these words";
};

Search.query = show;
