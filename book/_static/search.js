// Ranks sections, and opens the one that answers: Sphinx's own search ranks pages.
// The data are in search_data.js, which book/_ext/searching.py writes; both cut words alike.
"use strict";

let stemmer;
const WEIGHTS = { title: 8, typed: 12, page: 2, text: 4, anchor: 4, first: 1.2, synonym: 0.7, language: 0.1 };
const SHOWN = 30;

const CHINESE = /[\u3400-\u9fff]/u;

// "constructor" may be typed, and every object has one.
const own = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined);

// Words in one spelling, without those that say nothing; pairs of letters of Chinese.
const cut = (text) => {
  let line = text.toLowerCase().replaceAll("_", " ");
  for (const [pattern, tail] of SECTIONS.spellings)
    line = line.replace(new RegExp(pattern, "gu"), (_, start) => start.replace(/\W/gu, "") + tail);
  const words = [];
  for (const word of line.match(/[\p{L}\p{N}]+/gu) || []) {
    if (CHINESE.test(word)) {
      for (let k = 0; k < word.length - 1; k++) words.push(word.slice(k, k + 2));
      continue;
    }
    for (const part of own(SECTIONS.aliases, word) || [word])
      if (!stopwords.includes(part) && (part.length > 1 || /^\d$/.test(part))) words.push(part);
  }
  return words;
};

const stem = (word) => (stemmer ??= new Stemmer()).stemWord(word);
const tokenize = (text) => cut(text).map(stem);

// Without the words of a question that say nothing, unless there are no others.
const telling = (words, cutEnd = stem) => {
  const rest = words.filter((word) => !SECTIONS.fillers.includes(cutEnd(word)));
  return rest.length ? rest : words;
};

// Whether behind the first letter one was changed, added, left out, or two neighbors changed places.
const isSlip = (a, b) => {
  if (Math.abs(a.length - b.length) > 1 || a.length < 5 || a[0] !== b[0]) return false;
  let k = 0;
  while (k < a.length && a[k] === b[k]) k++;
  const [x, y] = [a.slice(k), b.slice(k)];
  return x.slice(1) === y.slice(1) || x.slice(1) === y || x === y.slice(1) ||
    (x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2));
};

// What each section has of a token: in its title, in what people type, in its page's title, in its text.
const prepare = () => {
  SECTIONS.counts = new Map();
  SECTIONS.lengths = SECTIONS.sections.map(() => 0);
  for (const [token, list] of Object.entries(SECTIONS.index)) {
    SECTIONS.counts.set(token, new Map());
    for (let k = 0; k < list.length; k += 2) {
      SECTIONS.counts.get(token).set(list[k], list[k + 1]);
      SECTIONS.lengths[list[k]] += list[k + 1];
    }
  }
  for (const [, , , , title, typed] of SECTIONS.sections)
    for (const token of [...title, ...typed.flat()])
      if (!SECTIONS.counts.has(token)) SECTIONS.counts.set(token, new Map());
  SECTIONS.usual = SECTIONS.lengths.reduce((a, b) => a + b) / SECTIONS.lengths.length;
  // of "Warmup: the first ten updates", the length is that of "Warmup"
  SECTIONS.heads = SECTIONS.sections.map(([, , title]) => Math.max(1, telling(cut(title.split(/[:：]/)[0])).length));
  SECTIONS.anchors = SECTIONS.sections.map(([, anchor]) => tokenize(anchor.replaceAll("-", " ")));
  const words = SECTIONS.sections.flatMap(([, , title]) => cut(title));
  SECTIONS.named = new Set(words.filter((word) => SECTIONS.counts.has(stem(word))));
  for (const section of SECTIONS.sections) section[5] = section[5].map((stems) => telling(stems, (token) => token));
  for (const document of SECTIONS.documents) document.tokens = tokenize(document[1]);
};

// A word that no section has is read as a word of a title that differs by a slip; where there is none, it is
// dropped. Stems would not do: without their ends, "strangely" and "strong" differ by one letter.
const meant = (word) => {
  const count = (other) => SECTIONS.counts.get(stem(other)).size;
  if (SECTIONS.counts.has(stem(word))) return [stem(word)];
  const near = [...SECTIONS.named].filter((other) => isSlip(word, other));
  return near.sort((a, b) => count(b) - count(a)).slice(0, 1).map(stem);
};

// By section: how much it has of a token.
const weigh = (token, tokens) => {
  const counts = SECTIONS.counts.get(token) || new Map();
  return SECTIONS.sections.map(([doc, , , , title, typed], k) => {
    const inTitle = title.includes(token) ? 1 / Math.sqrt(Math.max(1, SECTIONS.heads[k] / tokens.length)) : 0;
    const phrases = typed.filter((phrase) => phrase.includes(token));
    const share = Math.max(0, ...phrases.map((phrase) => phrase.filter((t) => tokens.includes(t)).length / phrase.length));
    const count = counts.get(k) || 0;
    const long = 0.4 + 0.6 * SECTIONS.lengths[k] / SECTIONS.usual;
    return (
      WEIGHTS.title * inTitle +
      WEIGHTS.typed * share ** 2 +
      WEIGHTS.anchor * SECTIONS.anchors[k].includes(token) +
      WEIGHTS.page * SECTIONS.documents[doc].tokens.includes(token) +
      (WEIGHTS.text * count) / (count + 1.5 * long)
    );
  });
};

const rank = (query) => {
  if (!SECTIONS.counts) prepare();
  const tokens = [...new Set(telling(cut(query)).flatMap(meant))];
  const total = SECTIONS.sections.length;
  const found = new Map();
  let all = 0;
  for (const token of tokens) {
    const hits = weigh(token, tokens);
    for (const other of own(SECTIONS.synonyms, token) || [])
      weigh(other, tokens).forEach((hit, k) => { hits[k] = Math.max(hits[k], WEIGHTS.synonym * hit); });
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
      const [name, page, weight] = SECTIONS.documents[doc];
      const first = title === page ? WEIGHTS.first : 1;
      const own = CHINESE.test(query) === name.startsWith("book/zh/") ? 1 : WEIGHTS.language;
      return [k, score * weight * first * own * (covered / all) ** 1.5];
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
