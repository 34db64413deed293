// Everything from the data enters the page as text nodes and attribute values, never as markup.

const report = await unpacked(document.getElementById("report").textContent);
const MEASURED = ["seconds", "error_ratio", "norm_ratio", "rms", "bias"];
report.cases = report.cases.flatMap(casesOf);
const SVG = "http://www.w3.org/2000/svg";
const STATES = ["passed", "known", "failed", "untested", "not_applicable"];
const OUTCOMES = ["failed", "mistrusted", "skipped", "passed"];
const CASE_TOTALS = ["passed", "skipped", "mistrusted", "failed", "known_failures", "unexpected_passes"];
const MARKS = { passed: "✓", known: "≠", failed: "✗", untested: "○", not_applicable: "–", skipped: "↷", mistrusted: "?", unexpected: "!" };
// What a state or a total is called; the others are called what they are.
const NAMES = { failed: "new failures", known: "known failures", known_failures: "of them known" };
const FIRST_CASES = 25; // cases shown at once under a clause
const AUTO_OPEN = 40; // matches up to which the tree opens itself
const LOOSE = 1e-3; // a function whose largest ratio is below this deserves a look at its bound
const DECADES = 8; // the histogram runs from 1e-8 to 1, two bins per decade

const words = (name) => name.replaceAll("_", " ");
const stateName = (state) => NAMES[state] ?? words(state);
const count = (number) => number.toLocaleString("en");
const percent = (part, whole) => (whole ? `${(Math.floor((1000 * part) / whole) / 10).toFixed(1)} %` : "–");
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const byId = (id) => document.getElementById(id);

// The data is JSON, compressed by gzip, in base64.
async function unpacked(text) {
  if (!globalThis.DecompressionStream) {
    const notice = "This browser cannot unpack the report's data. The same data is in compliance.json.";
    document.querySelector("main").prepend(Object.assign(document.createElement("p"), { className: "notice", textContent: notice }));
    throw new Error(notice);
  }
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// The cases of an entry: itself, or those of a test that ended alike.
function casesOf(entry) {
  if (!entry.measured) return [entry];
  const { measured, messages, places, ...shared } = entry;
  const parameters = report.tests[entry.id];
  return measured.map((row, index) => {
    const numbers = Object.fromEntries(MEASURED.map((name, column) => [name, row[column] ?? null]));
    return { ...shared, ...numbers, message: messages?.[index], id: entry.id + parameters[places ? places[index] : index] };
  });
}

// The line that runs a case again, by the rules of Subject.reproduction.
function reproductionOf(result) {
  const asked = report.subject_details[result.subject].asked || result.subject;
  const single = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;
  const subject = /^[\p{L}\p{N}_@%+=:,./-]+$/u.test(asked) ? asked : single(asked);
  const id = /["$`\\!]/.test(result.id) ? single(result.id) : `"${result.id}"`;
  return result.reproduction || `dualdnn conformance --subject ${subject} --case ${id}`;
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function button(label, action, attributes = {}) {
  const node = element("button", { type: "button", ...attributes }, label);
  node.addEventListener("click", () => action(node));
  return node;
}

function chip(state, label) {
  return element("span", { class: `chip ${state}` }, element("span", { "aria-hidden": "true" }, MARKS[state] ?? "!"), label);
}

function table(caption, headings, rows, attributes = {}) {
  const head = headings.map((heading) => element("th", { scope: "col", class: heading.class }, heading.label ?? heading));
  const node = element(
    "table", attributes,
    caption ? element("caption", {}, caption) : null,
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, rows),
  );
  return element("div", { class: "frame" }, node);
}

const number = (label) => ({ label, class: "number" });
const rowHead = (...content) => element("th", { scope: "row" }, ...content);

function groupBy(entries, key) {
  const groups = new Map();
  for (const entry of entries) {
    const name = key(entry);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(entry);
  }
  return groups;
}

// The data, with what the views ask of it.

const clauses = Object.entries(report.clauses).map(([id, clause]) => ({ id, ...clause, results: [], skips: [] }));
const clauseById = new Map(clauses.map((clause) => [clause.id, clause]));
for (const result of report.cases) {
  for (const id of result.clauses) clauseById.get(id).results.push(result);
}
const skips = report.skips ?? [];
for (const entry of skips) {
  for (const id of entry.clauses) clauseById.get(id).skips.push(entry);
}
const uncited = report.cases.filter((result) => result.clauses.length === 0);
const functions = new Map(Object.entries(report.functions));
const testedFunctions = new Set(clauses.filter((clause) => clause.results.length).map((clause) => clause.function));
const libraries = [...new Set([...clauses, ...functions.values()].map((entry) => entry.library))];

function countStates(members, subject) {
  const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const clause of members) counts[clause.subjects[subject]] += 1;
  return counts;
}

const tested = (counts) => counts.passed + counts.known + counts.failed;
const applicable = (counts) => tested(counts) + counts.untested;
const isNew = (result) => result.outcome === "failed" && !result.known;
const isUnexpected = (result) => result.outcome !== "failed" && Boolean(result.known);

function meter(counts) {
  const parts = STATES.filter((state) => counts[state]).map((state) => {
    const part = element("span", { class: state });
    part.style.flexGrow = counts[state];
    return part;
  });
  return element("div", { class: "meter", "aria-hidden": "true" }, parts);
}

// Summary.

function renderSummary() {
  const functionNames = new Set(clauses.map((clause) => clause.function));
  byId("extent").textContent =
    ` · ${count(clauses.length)} clauses of ${count(functionNames.size)} functions, types and use cases` +
    ` · ${count(report.cases.length)} results, ${count(sum(skips.map((entry) => entry.count)))} cases skipped, on ${count(report.subjects.length)} subjects`;
  byId("cards").append(...report.subjects.map(card));
  byId("totals").append(caseTotals(), libraryTotals());
}

// When and from what the report was made; each run of a report that joins several.
function renderOrigin() {
  const { runs = [{}], ...shared } = report.environment;
  const made = runs.map((run) => ({ ...shared, ...run })).filter((run) => run.date || run.commit).map((run) => {
    const days = Math.floor((Date.now() - Date.parse(run.date?.replace(" UTC", "Z").replace(" ", "T"))) / 86400000);
    const age = Number.isNaN(days) ? null : days < 1 ? " (today)" : ` (${count(days)} ${days === 1 ? "day" : "days"} ago)`;
    return element("p", { class: "origin" }, `Made ${run.date ?? "at an unknown time"}`, age, ", from commit ", element("code", {}, run.commit ?? "unknown"));
  });
  document.querySelector("header").append(...made);
}

// What a reader must know before the first number: that a tier or a part of the suite was run, or not to its end.
function renderState() {
  const { runs = [{}], ...shared } = report.environment;
  const lines = runs.map((run) => ({ ...shared, ...run })).filter((run) => run.tier || (run.state && run.state !== "complete")).map((run) => {
    const whole = !run.state || run.state === "complete";
    const part = run.state === "interrupted" ? "This run was interrupted: cases are missing" : `Only a part of the suite was run: ${run.selection || (run.shard ? `shard ${run.shard}` : "a selection")}`;
    const what = [run.tier ? `This is the report of a tier of the suite: ${run.tier}` : null, whole ? null : part].filter(Boolean).join(". ");
    return element("p", { class: "notice", "data-state": whole ? "tier" : run.state }, `${what}. `, run.command ? element("code", {}, run.command) : null);
  });
  document.querySelector("main").prepend(...lines);
}

function card(subject) {
  const counts = countStates(clauses, subject);
  const entries = STATES.flatMap((state) => {
    const link = element("a", { href: hashOf({ subject, state: [state] }), "data-total": `clauses/${subject}/${state}` }, count(counts[state]));
    return [element("dt", { class: state }, stateName(state)), element("dd", {}, link)];
  });
  const description = report.subject_details[subject].description;
  const implemented = [...functions.values()].filter((entry) => entry.implemented[subject]).length;
  const verdict = counts.failed ? "failed" : counts.known ? "known" : counts.passed ? "passed" : "untested";
  const failures = [counts.failed && `${count(counts.failed)} with new failures`, counts.known && `${count(counts.known)} with known failures`].filter(Boolean);
  return element(
    "article", { class: "card", "aria-label": subject },
    element("h3", {}, subject),
    element("p", {}, description),
    element("div", { class: `verdict ${verdict}` }, element("strong", {}, count(counts.passed)), ` of ${count(tested(counts))} tested clauses passed`),
    element("p", {}, failures.length ? `${failures.join(", ")}.` : tested(counts) ? "No clause has a failing case." : "No clause was tested."),
    report.environment.evidence?.[subject] ? element("p", { "data-evidence": subject }, `${report.environment.evidence[subject]}.`) : null,
    element("div", { class: "coverage" }, element("strong", {}, percent(implemented, functions.size)), " of the document is implemented"),
    element("p", {}, `${count(implemented)} of ${count(functions.size)} functions; ${count(tested(counts))} of the ${count(applicable(counts))} clauses that this subject can show were tested.`),
    meter(counts),
    element("dl", {}, entries),
  );
}

function caseTotals() {
  const rows = report.subjects.map((subject) => {
    const own = report.cases.filter((result) => result.subject === subject);
    const tally = {
      ...Object.fromEntries(OUTCOMES.map((outcome) => [outcome, own.filter((result) => result.outcome === outcome).length])),
      skipped: sum(skips.filter((entry) => entry.subject === subject).map((entry) => entry.count)),
      known_failures: own.filter((result) => result.known && !isUnexpected(result)).length,
      unexpected_passes: own.filter(isUnexpected).length,
    };
    const implemented = [...functions.values()].filter((entry) => entry.implemented[subject]).length;
    const cell = (label, text, key) => element("td", { class: "number", "data-label": label, "data-total": key }, text);
    return element(
      "tr", {}, rowHead(subject),
      CASE_TOTALS.map((name) => cell(totalName(name), count(tally[name]), `cases/${subject}/${name}`)),
      cell("time", timeText(sum(own.map((result) => result.seconds)))),
      cell("functions implemented", `${count(implemented)} of ${count(functions.size)}`, `functions/${subject}`),
    );
  });
  const headings = ["Subject", ...CASE_TOTALS.map(totalName).map(number), number("time"), number("functions implemented")];
  return table("Cases and functions", headings, rows, { class: "stack" });
}

// Skipped cases are counted by reason; the tests that they belong to open below it.
function renderSkips() {
  if (!skips.length) return;
  const rows = [...skips].sort((a, b) => b.count - a.count).map((entry) => element(
    "tr", { "data-skips": entry.subject },
    rowHead(entry.subject),
    element("td", { class: "number", "data-label": "cases" }, count(entry.count)),
    element("td", { "data-label": "reason" }, branch("function", `skips ${entry.subject} ${entry.reason}`, entry.reason, () =>
      [element("ul", {}, Object.entries(entry.tests).map(([test, number]) => element("li", {}, element("code", {}, test), ` ${count(number)}`)))])),
  ));
  const heading = `${count(sum(skips.map((entry) => entry.count)))} skipped cases, by reason`;
  byId("skips").append(branch("library", "skips", heading, () =>
    [table("", ["Subject", number("cases"), "Reason and tests"], rows, { class: "stack" })]));
}

const totalName = (name) => (name === "known_failures" ? NAMES[name] : words(name));

function libraryTotals() {
  const groups = groupBy(clauses, (clause) => clause.library);
  const rows = [...groups].map(([library, members]) => {
    const link = element("a", { href: hashOf({ library }) }, library);
    const cells = report.subjects.map((subject) => {
      const counts = countStates(members, subject);
      const failed = counts.failed ? `, ${count(counts.failed)} with new failures` : "";
      const known = counts.known ? `, ${count(counts.known)} known` : "";
      const verdict = tested(counts) ? `${count(counts.passed)} of ${count(tested(counts))} tested passed${failed}${known}` : "nothing tested";
      return element("td", { "data-label": subject }, meter(counts), element("small", {}, verdict));
    });
    return element("tr", {}, rowHead(link), element("td", { class: "number", "data-label": "clauses" }, count(members.length)), cells);
  });
  return table("Libraries", ["Library", number("clauses"), ...report.subjects], rows, { class: "stack" });
}

// Filters. Their values live in the form, and in the address, so that a view can be passed on.

const form = byId("filters");
const FIELDS = ["q", "subject", "library", "kind", "scope"];

function option(value, label = value) {
  return element("option", { value }, label);
}

function buildFilters() {
  const kinds = [...new Set(clauses.map((clause) => clause.kind))].sort();
  form.elements.subject.append(option("", "any"), ...report.subjects.map((name) => option(name)));
  form.elements.library.append(option("", "all"), ...libraries.map((name) => option(name)));
  form.elements.kind.append(option("", "all"), ...kinds.map((name) => option(name)));
  byId("states").append(...STATES.map((state) =>
    element("label", {}, element("input", { type: "checkbox", name: "state", value: state }), stateName(state))));
}

function readFilters() {
  const values = Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value]));
  values.state = [...form.elements.state].filter((box) => box.checked).map((box) => box.value);
  return values;
}

function setFilters(values) {
  for (const name of FIELDS) form.elements[name].value = values[name] ?? "";
  for (const select of form.querySelectorAll("select")) if (select.selectedIndex < 0) select.selectedIndex = 0;
  for (const box of form.elements.state) box.checked = (values.state ?? []).includes(box.value);
}

function hashOf(values) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const entry of [value].flat()) if (entry) parameters.append(name, entry);
  }
  return `#${parameters}`;
}

function haystack(clause) {
  clause.haystack ??= [
    clause.id, clause.function, clause.section, clause.status ?? "", clause.text,
    ...clause.results.flatMap((result) => [result.id, result.message]),
  ].join("\n").toLowerCase();
  return clause.haystack;
}

function inScope(name, filters) {
  if (filters.scope === "tested") return testedFunctions.has(name);
  const implemented = functions.get(name)?.implemented;
  if (filters.scope !== "implemented") return true;
  // Types and use cases stand in no table of functions.
  if (implemented === undefined) return testedFunctions.has(name);
  return filters.subject ? implemented[filters.subject] : Object.values(implemented).some(Boolean);
}

function matches(filters) {
  const terms = filters.q.toLowerCase().split(/\s+/).filter(Boolean);
  const subjects = filters.subject ? [filters.subject] : report.subjects;
  return clauses.filter((clause) =>
    (!filters.library || clause.library === filters.library) &&
    (!filters.kind || clause.kind === filters.kind) &&
    (!filters.state.length || subjects.some((subject) => filters.state.includes(clause.subjects[subject]))) &&
    inScope(clause.function, filters) &&
    terms.every((term) => haystack(clause).includes(term)));
}

// The tree: library, function, clause, case. A level is drawn when it is first opened.

const opened = new Set();

function branch(kind, key, summary, fill, open) {
  const heading = element("summary", {}, summary);
  const node = element("details", { class: kind, "data-key": key }, heading);
  const draw = () => {
    if (node.childElementCount === 1) node.append(...fill());
  };
  node.addEventListener("toggle", () => {
    if (node.open) draw();
  });
  // What the reader opened stays open when the filters change; a click comes before the change it makes.
  heading.addEventListener("click", () => opened[node.open ? "delete" : "add"](`${kind} ${key}`));
  if (open || opened.has(`${kind} ${key}`)) {
    draw();
    node.open = true;
  }
  return node;
}

function renderTree(openAll = false) {
  const filters = readFilters();
  const found = matches(filters);
  const open = openAll || found.length <= AUTO_OPEN;
  const subjects = filters.subject ? [filters.subject] : report.subjects;
  byId("found").textContent = `${count(found.length)} of ${count(clauses.length)} clauses`;
  const nodes = [...groupBy(found, (clause) => clause.library)].map(([library, members]) =>
    libraryBranch(library, members, subjects, open));
  const unfiltered = !FIELDS.some((name) => filters[name]) && !filters.state.length;
  byId("tree").replaceChildren(...nodes, ...(unfiltered ? bareFunctions(found) : []));
  drawn("found");
}

function libraryBranch(library, members, subjects, open) {
  const groups = groupBy(members, (clause) => clause.function);
  const note = `${count(groups.size)} entries, ${count(members.length)} clauses`;
  return branch("library", library, line(library, note, members, subjects), () =>
    [...groups].map(([name, own]) =>
      branch("function", `${library} ${name}`, line(name, `section ${own[0].section}`, own, subjects), () => [clauseTable(own, subjects)], open)), open);
}

// Functions of which the document says nothing to test still have to be there or not.
function bareFunctions(found) {
  const cited = new Set(found.map((clause) => clause.function));
  const bare = [...functions].filter(([name]) => !cited.has(name));
  return [...groupBy(bare, ([, entry]) => entry.library)].map(([library, members]) =>
    branch("library", `${library} without clauses`, `${library}: ${count(members.length)} functions without clauses of their own`, () => {
      const rows = members.map(([name, entry]) => element("tr", {}, rowHead(element("code", {}, name)), report.subjects.map((subject) =>
        element("td", { "data-label": subject }, entry.implemented[subject] ? "implemented" : "absent"))));
      return [table("", ["Function", ...report.subjects], rows, { class: "stack" })];
    }));
}

function line(name, note, members, subjects) {
  const shares = subjects.map((subject) => {
    const counts = countStates(members, subject);
    const share = tested(counts) ? `${count(counts.passed)} of ${count(tested(counts))}` : "–";
    const failed = counts.failed ? [" ", chip("failed", `${count(counts.failed)} new`)] : [];
    const known = counts.known ? [" ", chip("known", `${count(counts.known)} known`)] : [];
    return element("span", { class: "share" }, `${subject} `, element("b", {}, share), failed, known);
  });
  return element("span", { class: "line" }, element("span", { class: "grow" }, name, " ", element("small", {}, note)), element("span", { class: "shares" }, shares));
}

function clauseTable(members, subjects) {
  const rows = members.flatMap((clause) => clauseRows(clause, subjects));
  return table("", ["Clause", "What the document says", ...subjects, "Cases"], rows, { class: "clauses stack" });
}

function clauseRows(clause, subjects) {
  const results = clause.results.filter((result) => subjects.includes(result.subject));
  const tags = [clause.kind, clause.status, clause.shown_on === "no" ? "cannot be shown" : null].filter(Boolean).join(" · ");
  const details = element("tr", { class: "cases", hidden: "" });
  const skipped = clause.skips.filter((entry) => subjects.includes(entry.subject));
  const label = results.length || !skipped.length ? `${count(results.length)} ${results.length === 1 ? "case" : "cases"}` : "skipped";
  const toggle = button(label, () => {
    details.hidden = !details.hidden;
    toggle.setAttribute("aria-expanded", String(!details.hidden));
    if (!details.childElementCount) details.append(element("td", { colspan: subjects.length + 3 }, results.length ? caseTable(results) : null, skipped.map(skipLine)));
  }, { "aria-expanded": "false", "aria-label": `${results.length} cases of ${clause.id}` });
  const short = clause.id.slice(clause.id.indexOf("/") + 1);
  const row = element(
    "tr", { "data-clause": clause.id },
    rowHead(element("a", { class: "id", href: hashOf({ ...readFilters(), clause: clause.id }), title: clause.id }, short)),
    element("td", { class: "text" }, element("p", {}, clause.text), clause.reason ? element("p", { class: "reason" }, clause.reason) : null, element("span", { class: "tags" }, tags)),
    subjects.map((subject) => element("td", { "data-label": subject }, stateChip(clause, subject))),
    element("td", {}, results.length || skipped.length ? toggle : null),
  );
  return results.length || skipped.length ? [row, details] : [row];
}

function skipLine(entry) {
  return element("p", { class: "skips" }, chip("skipped", "skipped"), ` on ${entry.subject}: ${entry.reason}`);
}

// How many of a clause's cases passed: one of a hundred that fails is not the same as all of them.
function stateChip(clause, subject) {
  const state = clause.subjects[subject];
  const judged = clause.results.filter((result) => result.subject === subject && ["passed", "failed"].includes(result.outcome));
  if (!judged.length) return chip(state, words(state));
  const passed = judged.filter((result) => result.outcome === "passed").length;
  const partly = state === "failed" && passed ? "partly" : state;
  const node = chip(state, `${count(passed)} of ${count(judged.length)} passed`);
  node.className = `chip ${partly}`;
  node.title = stateName(state);
  return node;
}

function caseTable(results, limit = FIRST_CASES) {
  const rank = (result) => OUTCOMES.indexOf(result.outcome) + (isUnexpected(result) ? -4 : isNew(result) ? -5 : 0);
  const sorted = results.toSorted((a, b) => rank(a) - rank(b));
  const rows = sorted.slice(0, limit).map(caseRow);
  const frame = table("", ["Outcome", "Subject", "Case", number("error / bound"), number("time")], rows, { class: "stack" });
  if (sorted.length > limit) {
    frame.append(button(`Show all ${count(sorted.length)}`, () => frame.replaceWith(caseTable(results, Infinity))));
  }
  return frame;
}

function caseRow(result) {
  const details = [
    result.suspect ? element("p", {}, `suspect: ${result.suspect}`) : null,
    sharperText(result) ? element("p", { class: "sharper" }, sharperText(result)) : null,
    result.reason ? element("p", {}, `${words(result.outcome)}: ${result.reason}`) : null,
    result.message ? element("pre", {}, result.message) : null,
    element("div", { class: "copy" }, element("code", {}, reproductionOf(result)), button("Copy", (node) => copy(reproductionOf(result), node), { "aria-label": "Copy the reproduction line" })),
  ];
  return element(
    "tr", { "data-case": result.id },
    element("td", {}, caseChip(result)),
    element("td", { class: "result-subject" }, result.subject),
    element("td", {}, element("code", {}, result.id), details),
    element("td", { class: "number", "data-label": "error / bound" }, ratioText(ratioOf(result))),
    element("td", { class: "number", "data-label": "time" }, timeText(result.seconds)),
  );
}

function caseChip(result) {
  if (isUnexpected(result)) return chip("unexpected", "passes unexpectedly");
  return result.known ? chip("known", `known: ${result.known}`) : chip(result.outcome, result.outcome);
}

const timeText = (seconds) => (seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(2)} s`);

async function copy(text, node) {
  const shown = await writeClipboard(text) ? "Copied" : "Press Ctrl+C";
  byId("announce").textContent = shown;
  node.textContent = shown;
  setTimeout(() => { node.textContent = "Copy"; }, 1500);
}

async function writeClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Clipboard access may be denied to local files; a selection can still be copied by hand.
    const code = [...document.querySelectorAll(".copy code")].find((candidate) => candidate.textContent === text);
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

// Error and bound.

function ratioOf(result) {
  return { nan: NaN, inf: Infinity }[result.nonfinite_error_ratio] ?? result.error_ratio;
}

// What the sharper rules measured: the error beside the interval of the 2-norm, root mean square and bias.
function sharperText(result) {
  const told = [["of the 2-norm's interval", result.norm_ratio], ["root mean square", result.rms], ["bias", result.bias]];
  return told.filter(([, value]) => value != null).map(([name, value]) => `${name} ${value.toPrecision(2)}`).join(", ");
}

function ratioText(ratio) {
  if (ratio === null) return "";
  if (ratio === 0) return "0";
  if (!Number.isFinite(ratio)) return String(ratio);
  return ratio >= 0.01 && ratio < 1000 ? ratio.toPrecision(2) : ratio.toExponential(1);
}

const numeric = report.cases.filter((result) => ratioOf(result) !== null);
const worst = (ratios) => ratios.reduce((most, ratio) => (Number.isNaN(most) || ratio <= most ? most : ratio), 0);

function median(ratios) {
  const sorted = ratios.map((ratio) => (Number.isNaN(ratio) ? Infinity : ratio)).sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

// Bin 0 is exact, the last is over the bound; between them half decades, the first holding everything smaller.
const LAST = 2 * DECADES + 1;

function bins(ratios) {
  const heights = new Array(LAST + 1).fill(0);
  for (const ratio of ratios) {
    const place = LAST + Math.floor(2 * Math.log10(ratio));
    if (ratio === 0) heights[0] += 1;
    else if (!(ratio <= 1)) heights[LAST] += 1;
    else heights[Math.min(Math.max(place, 1), LAST - 1)] += 1;
  }
  return heights;
}

function histogram(ratios, label, height, axis) {
  const step = 20;
  const width = step * (LAST + 4);
  const left = (bin) => step * (bin === 0 ? 0 : bin === LAST ? bin + 2 : bin + 1);
  const heights = bins(ratios);
  const highest = Math.max(...heights);
  const plot = shape("svg", { viewBox: `-${step / 2} 0 ${width} ${height + (axis ? 24 : 0)}`, role: "img", "aria-label": label });
  plot.append(shape("line", { class: "axis", x1: 0, x2: width - step, y1: height - 0.5, y2: height - 0.5 }));
  const limit = left(LAST) - step / 2;
  plot.append(shape("line", { class: "limit", x1: limit, x2: limit, y1: 0, y2: height }));
  heights.forEach((entries, bin) => {
    if (!entries) return;
    // The square root keeps a single case visible beside thousands.
    const tall = Math.max(2, (height - 2) * Math.sqrt(entries / highest));
    const kind = bin === 0 ? "mark exact" : bin === LAST ? "mark over" : "mark";
    plot.append(shape("rect", { class: kind, x: left(bin) + 1, y: height - tall, width: step - 2, height: tall, rx: 1.5 }));
  });
  if (axis) plot.append(...axisLabels(left, step, height + 20));
  return plot;
}

function axisLabels(left, step, y) {
  const place = (x, label) => shape("text", { x, y, "text-anchor": "middle" }, label);
  const decades = [6, 4, 2].map((power) => place(left(LAST - 2 * power), `1e-${power}`));
  return [place(step / 2, "0"), ...decades, place(left(LAST) - step / 2 - 4, "1"), place(left(LAST) + step / 2 + 1, ">1")];
}

const describe = (ratios) => `${count(ratios.length)} numeric ${ratios.length === 1 ? "case" : "cases"}, median ${ratioText(median(ratios))}, largest ${ratioText(worst(ratios))}`;

function renderErrors() {
  const groups = groupBy(numeric, (result) => result.subject);
  byId("histograms").append(...report.subjects.filter((subject) => groups.has(subject)).map((subject) => {
    const ratios = groups.get(subject).map(ratioOf);
    return element("figure", {}, element("figcaption", {}, element("strong", {}, subject), ` · ${describe(ratios)}`), histogram(ratios, `${subject}: ${describe(ratios)}`, 90, true));
  }));
  if (!numeric.length) byId("histograms").append("No case compared numbers.");
  byId("ratios").hidden = !numeric.length;
  byId("ratios").addEventListener("toggle", renderRatios);
}

function ratiosByFunction() {
  const names = (result) => [...new Set(result.clauses.map((id) => clauseById.get(id).function))];
  const pairs = numeric.flatMap((result) => names(result).map((name) => ({ name, subject: result.subject, ratio: ratioOf(result) })));
  return [...groupBy(pairs, (pair) => pair.name)].map(([name, own]) => {
    const ratios = own.map((pair) => pair.ratio);
    return { name, worst: worst(ratios), bySubject: groupBy(own, (pair) => pair.subject) };
  });
}

function renderRatios() {
  const node = byId("ratios");
  if (!node.open || node.childElementCount > 1) return;
  const subjects = report.subjects.filter((subject) => numeric.some((result) => result.subject === subject));
  // Loosest bounds first; exact results and those over their bound say nothing about looseness.
  const rank = (entry) => (entry.worst === 0 ? 2 : entry.worst <= 1 ? entry.worst : 3);
  const rows = ratiosByFunction().sort((a, b) => rank(a) - rank(b)).map((entry) => element(
    "tr", {},
    rowHead(element("a", { href: hashOf({ function: entry.name }) }, entry.name)),
    element("td", { class: "number", "data-label": "largest" }, ratioText(entry.worst)),
    element("td", {}, entry.worst > 0 && entry.worst < LOOSE ? chip("loose", "loose bound") : null),
    subjects.map((subject) => element("td", { "data-label": subject }, strip(entry, subject))),
  ));
  node.append(
    element("p", {}, `Loosest first. “Loose bound” marks functions that never come within ${LOOSE} of their bound. Each strip shows exact results, then 1e-${DECADES} … 1, then those over the bound.`),
    table("", ["Function", number("largest"), "note", ...subjects], rows, { class: "stack" }),
  );
}

function strip(entry, subject) {
  const ratios = (entry.bySubject.get(subject) ?? []).map((pair) => pair.ratio);
  return ratios.length ? histogram(ratios, `${entry.name} on ${subject}: ${describe(ratios)}`, 28, false) : null;
}

// Differences.

const clauseLink = (id) => [element("a", { class: "id", href: hashOf({ clause: id }) }, id), " "];

function renderDifferences() {
  const rows = report.differences.map((entry) => element(
    "tr", {},
    rowHead(entry.id),
    element("td", { "data-label": "function" }, element("code", {}, entry.function), element("br"), entry.clauses.flatMap(clauseLink)),
    element("td", { "data-label": "document" }, entry.document),
    element("td", { "data-label": "vendor" }, entry.vendor),
    element("td", { "data-label": "decision" }, entry.decision),
  ));
  const headings = ["Id", "Function and clauses", "The document", "The vendor's library", "Decision"];
  section("differences", rows.length ? table("", headings, rows, { class: "stack" }) : null);
}

// Benchmarks: filters of their own, two strips for each operation, the rows.

const benchmarks = report.benchmarks ?? [];
const benchForm = byId("bench-filters");
const BENCH_FIELDS = ["bench", "family", "rows"];
const BENCH_COLUMNS = ["name", "ours_us", "vendor_us", "graph_us", "speedup", "floor_us", "fraction", "host_us", "solver", "algorithm"];
const FIRST_ROWS = 100; // shown at once
const NEAR_FLOOR = 0.85;
const BENCH_KINDS = {
  behind: (row) => row.speedup < 1 && row.speedup !== null,
  far: (row) => row.fraction < NEAR_FLOOR && row.fraction !== null,
  untimed: (row) => row.ours_us === null,
};
const PLOT = { width: 400, height: 36, margin: 22 };

const benchLabel = (name) => words(name.replace(/_us$/, " (µs)"));
const familyOf = (row) => (typeof row.family === "string" ? row.family : row.name.split(/ \d+x\d/)[0]);
const positive = (rows, key) => rows.filter((row) => typeof row[key] === "number" && row[key] > 0);
const geometricMean = (values) => 2 ** (sum(values.map(Math.log2)) / values.length);
const twoDigits = (value) => (value >= 10 ? value.toFixed(0) : value.toPrecision(2));
const timesText = (value) => `${twoDigits(value)}×`;
const shareText = (value) => `${twoDigits(100 * value)} %`;

function buildBenchFilters() {
  const families = [...new Set(benchmarks.map(familyOf))];
  benchForm.elements.family.append(option("", "all"), ...families.map((name) => option(name)));
}

function readBenchFilters() {
  return Object.fromEntries(BENCH_FIELDS.map((name) => [name, benchForm.elements[name].value]));
}

function setBenchFilters(values) {
  for (const name of BENCH_FIELDS) benchForm.elements[name].value = values[name] ?? "";
  for (const select of benchForm.querySelectorAll("select")) if (select.selectedIndex < 0) select.selectedIndex = 0;
}

function benchMatches(filters) {
  const terms = filters.bench.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => Object.values(row).join("\n").toLowerCase();
  return benchmarks.filter((row) =>
    (!filters.family || familyOf(row) === filters.family) &&
    (!filters.rows || BENCH_KINDS[filters.rows](row)) &&
    terms.every((term) => text(row).includes(term)));
}

function renderBenchmarks() {
  const found = benchMatches(readBenchFilters());
  byId("bench-found").textContent = `${count(found.length)} of ${count(benchmarks.length)} rows`;
  byId("bench-view").replaceChildren(...(found.length ? [benchPlots(found), roofline(found), benchTable(found)] : []));
  drawn("bench-found");
}

// Rooflines: what a row reaches over what its work allows. Rows that only move bytes have the bandwidth and a launch as their
// roof, rows that compute the bandwidth and the arithmetic of their data type; both are read off the rows' own floors.
const ROOF = { width: 560, height: 300, left: 66, right: 16, top: 14, bottom: 44 };
const ROOFS = [
  { title: "Rows that move bytes", x: "bytes moved", y: "GB/s", of: (row) => !row.flops, at: (row) => row.bytes, work: (row) => row.bytes / 1e3, lines: bandwidthRoof },
  { title: "Rows that compute", x: "operations per byte", y: "TFLOP/s", of: (row) => row.flops > 0, at: (row) => row.flops / row.bytes, work: (row) => row.flops / 1e6, lines: arithmeticRoofs },
];

// Rows that a launch limits lie below; what fewer bytes reach, more bytes reach too.
function bandwidthRoof(points) {
  const line = points.toSorted((a, b) => a.x - b.x || a.allowed - b.allowed).map(({ x, allowed }) => ({ x, y: allowed }));
  for (let index = 1; index < line.length; index += 1) line[index].y = Math.max(line[index].y, line[index - 1].y);
  return [{ line }];
}

// The bandwidth up to the arithmetic of each data type; types of one speed share a line.
function arithmeticRoofs(points) {
  const highest = (own, value) => own.reduce((most, entry) => Math.max(most, value(entry)), 0);
  const bandwidth = highest(benchmarks.filter((row) => row.bytes > 0 && row.floor_us > 0), (row) => row.bytes / row.floor_us / 1e6);
  const [low, high] = [Math.min(...points.map((point) => point.x)), Math.max(...points.map((point) => point.x))];
  const flats = [...groupBy(points, (point) => point.row.pace ?? "")].map(([kind, own]) => ({ kind, flat: highest(own, (point) => point.allowed) }));
  return [...groupBy(flats, (entry) => Math.round(8 * Math.log(entry.flat)))].map(([, own]) => {
    const flat = own[0].flat;
    const ridge = Math.min(Math.max(flat / bandwidth, low), high);
    const line = [{ x: low, y: Math.min(flat, bandwidth * low) }, { x: ridge, y: flat }, { x: high, y: flat }];
    return { line, label: own.map((entry) => entry.kind).join(", ") };
  });
}

function roofline(rows) {
  const figures = ROOFS.map((roof) => roofPlot(roof, rows.filter((row) => row.bytes > 0 && row.ours_us > 0 && row.floor_us > 0 && roof.of(row))));
  return element("div", { class: "roofs" }, figures.filter(Boolean));
}

function roofPlot(roof, rows) {
  if (!rows.length) return null;
  const points = rows.map((row) => ({ row, x: roof.at(row), reached: roof.work(row) / row.ours_us, allowed: roof.work(row) / row.floor_us }));
  const heights = points.flatMap((point) => [point.reached, point.allowed]);
  const across = roofAxis(points.map((point) => point.x), ROOF.left, ROOF.width - ROOF.right);
  const up = roofAxis(heights, ROOF.height - ROOF.bottom, ROOF.top);
  const plot = shape("svg", { viewBox: `0 0 ${ROOF.width} ${ROOF.height}`, role: "img", "aria-label": `${roof.title}: ${roof.y} over ${roof.x}, ${count(points.length)} rows` });
  for (const tick of across.ticks) {
    plot.append(shape("line", { class: "axis", x1: across.place(tick), x2: across.place(tick), y1: ROOF.top, y2: ROOF.height - ROOF.bottom }));
    plot.append(shape("text", { x: across.place(tick), y: ROOF.height - ROOF.bottom + 16, "text-anchor": "middle" }, powerText(tick)));
  }
  for (const tick of up.ticks) {
    plot.append(shape("line", { class: "axis", x1: ROOF.left, x2: ROOF.width - ROOF.right, y1: up.place(tick), y2: up.place(tick) }));
    plot.append(shape("text", { x: ROOF.left - 8, y: up.place(tick) + 4, "text-anchor": "end" }, powerText(tick)));
  }
  plot.append(shape("text", { x: (ROOF.left + ROOF.width) / 2, y: ROOF.height - 6, "text-anchor": "middle" }, roof.x));
  plot.append(shape("text", { x: 14, y: ROOF.height / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${ROOF.height / 2})` }, roof.y));
  for (const point of points) {
    const mark = shape("circle", { class: point.row.speedup < 1 && point.row.speedup !== null ? "mark over" : "mark", cx: across.place(point.x), cy: up.place(point.reached), r: 3 });
    mark.append(shape("title", {}, `${point.row.name}: ${twoDigits(point.reached)} of ${twoDigits(point.allowed)} ${roof.y}`));
    plot.append(mark);
  }
  for (const { line, label } of roof.lines(points)) {
    plot.append(shape("polyline", { class: "roof", points: line.map(({ x, y }) => `${across.place(x).toFixed(1)},${up.place(y).toFixed(1)}`).join(" ") }));
    if (label) plot.append(shape("text", { x: ROOF.width - ROOF.right - 4, y: up.place(line.at(-1).y) - 5, "text-anchor": "end" }, label));
  }
  return element("figure", {}, element("figcaption", {}, element("strong", {}, roof.title), ` · the line is the roof, a point a row${points.some((p) => p.row.speedup < 1 && p.row.speedup !== null) ? ", red where the vendor is faster" : ""}`), plot);
}

// A logarithmic axis from power of ten to power of ten.
function roofAxis(values, from, to) {
  const exponents = values.map(Math.log10);
  const low = Math.floor(exponents.reduce((a, b) => Math.min(a, b)));
  const high = Math.max(low + 1, Math.ceil(exponents.reduce((a, b) => Math.max(a, b))));
  const step = Math.ceil((high - low) / 8);
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push(10 ** power);
  return { ticks, place: (value) => from + ((to - from) * (Math.log10(value) - low)) / (high - low) };
}

function powerText(value) {
  const power = Math.round(Math.log10(value));
  return power >= -2 && power <= 3 ? String(value < 1 ? value.toFixed(-power) : value) : `1e${power}`;
}

// A view that was drawn says so, for whoever waits for it.
function drawn(id) {
  byId(id).dataset.drawn = String(Number(byId(id).dataset.drawn ?? 0) + 1);
}

// A logarithmic axis from power of two to power of two, as far as the values go.
function logAxis(values, least, most, text) {
  const exponents = values.map(Math.log2);
  const low = Math.floor(exponents.reduce((a, b) => Math.min(a, b), least));
  const high = Math.ceil(exponents.reduce((a, b) => Math.max(a, b), most));
  const step = Math.ceil((high - low) / 6);
  const ticks = [];
  for (let power = low; power <= high; power += 1) if (power % step === 0) ticks.push(2 ** power);
  const place = (value) => PLOT.margin + ((PLOT.width - 2 * PLOT.margin) * (Math.log2(value) - low)) / (high - low);
  return { ticks, place, text };
}

function benchPlots(rows) {
  const speed = logAxis(positive(rows, "speedup").map((row) => row.speedup), -1, 1, timesText);
  const share = logAxis(positive(rows, "fraction").map((row) => row.fraction), -1, 0, shareText);
  const labels = element("tr", { class: "axis-labels" }, rowHead(""), element("td"), element("td"), element("td", {}, axisPlot(speed)), element("td"), element("td", {}, axisPlot(share)));
  const lines = [...groupBy(rows, familyOf)].map(([family, own]) => benchLine(family, own, speed, share));
  const headings = ["Operation", number("rows behind the vendor"), number("geometric mean"), "times the vendor's speed", number("median"), "share of the floor"];
  return table("By operation: a point is a row, the bar their mean or median, both axes are logarithmic", headings, [labels, ...lines], { class: "stack plots" });
}

function benchLine(family, rows, speed, share) {
  const ratios = positive(rows, "speedup").map((row) => row.speedup);
  const shares = positive(rows, "fraction").map((row) => row.fraction);
  const mean = ratios.length ? geometricMean(ratios) : null;
  const middle = shares.length ? median(shares) : null;
  const behind = ratios.filter((ratio) => ratio < 1).length;
  return element(
    "tr", { "data-family": family },
    rowHead(element("a", { href: hashOf({ family }) }, family)),
    element("td", { class: "number", "data-label": "rows behind the vendor" }, ratios.length ? `${count(behind)} of ${count(ratios.length)}` : "–"),
    element("td", { class: "number", "data-label": "geometric mean" }, mean === null ? "–" : timesText(mean)),
    element("td", { "data-label": "times the vendor's speed" }, stripPlot(rows, "speedup", speed, mean, `${family}: times the vendor's speed`)),
    element("td", { class: "number", "data-label": "median" }, middle === null ? "–" : shareText(middle)),
    element("td", { "data-label": "share of the floor" }, stripPlot(rows, "fraction", share, middle, `${family}: share of the floor`)),
  );
}

function stripPlot(rows, key, axis, middle, label) {
  const shown = positive(rows, key);
  if (!shown.length) return null;
  const plot = axisFrame(axis, PLOT.height, `${label}, ${count(shown.length)} rows, ${axis.text(middle)}`);
  shown.forEach((row, index) => {
    // Rows that agree are spread over the height, in a fixed pattern.
    const y = PLOT.height * (0.2 + 0.6 * ((index * 0.618) % 1));
    const kind = key === "speedup" && row[key] < 1 ? "mark over" : "mark";
    plot.append(shape("circle", { class: kind, cx: axis.place(row[key]), cy: y, r: 4 }, shape("title", {}, `${row.name}: ${axis.text(row[key])}`)));
  });
  plot.append(shape("line", { class: "middle", x1: axis.place(middle), x2: axis.place(middle), y1: 0, y2: PLOT.height }));
  return plot;
}

function axisFrame(axis, height, label) {
  const plot = shape("svg", { viewBox: `0 0 ${PLOT.width} ${height}`, role: "img", "aria-label": label });
  for (const tick of axis.ticks) {
    plot.append(shape("line", { class: tick === 1 ? "limit" : "axis", x1: axis.place(tick), x2: axis.place(tick), y1: 0, y2: height }));
  }
  return plot;
}

function axisPlot(axis) {
  const plot = shape("svg", { viewBox: `0 0 ${PLOT.width} 24`, role: "img", "aria-label": `axis: ${axis.ticks.map(axis.text).join(", ")}` });
  plot.append(...axis.ticks.map((tick) => shape("text", { x: axis.place(tick), y: 18, "text-anchor": "middle" }, axis.text(tick))));
  return plot;
}

function benchTable(rows, limit = FIRST_ROWS) {
  const columns = BENCH_COLUMNS.filter((name) => rows.some((row) => (row[name] ?? null) !== null));
  const isNumber = (name) => benchmarks.some((row) => typeof row[name] === "number");
  const headings = [...columns.map((name) => (isNumber(name) ? number(benchLabel(name)) : benchLabel(name))), ""];
  const frame = table("", headings, rows.slice(0, limit).flatMap((row) => benchRow(row, columns, isNumber)), { class: "stack benchmarks" });
  if (rows.length > limit) frame.append(button(`Show all ${count(rows.length)}`, () => frame.replaceWith(benchTable(rows, Infinity))));
  return frame;
}

function benchText(name, value) {
  if (typeof value !== "number") return String(value ?? "");
  if (Number.isInteger(value)) return count(value);
  return value.toFixed(name.endsWith("_us") && Math.abs(value) >= 100 ? 1 : 2);
}

// What has no column opens below its row.
function benchRow(row, columns, isNumber) {
  const cell = (name) => (name === "name" ? rowHead(row.name, row.message ? element("p", { class: "tags" }, row.message) : "") :
    element("td", { class: isNumber(name) ? "number" : "", "data-label": benchLabel(name) }, benchText(name, row[name])));
  const others = Object.keys(row).filter((name) => ![...columns, "message"].includes(name) && row[name] !== null && row[name] !== "");
  const details = element("tr", { class: "cases", hidden: "" });
  const toggle = button("details", () => {
    details.hidden = !details.hidden;
    toggle.setAttribute("aria-expanded", String(!details.hidden));
    if (!details.childElementCount) {
      const entries = others.flatMap((name) => [element("dt", {}, benchLabel(name)), element("dd", {}, benchText(name, row[name]))]);
      details.append(element("td", { colspan: columns.length + 1 }, element("dl", { class: "entries" }, entries)));
    }
  }, { "aria-expanded": "false", "aria-label": `details of ${row.name}` });
  return [element("tr", { "data-bench": row.name }, columns.map(cell), element("td", {}, others.length ? toggle : null)), details];
}

// Environment, cases that cite nothing.

function renderEnvironment() {
  const { runs = [], ...shared } = report.environment;
  const value = (entry) => (typeof entry === "object" && entry !== null ? element("pre", {}, JSON.stringify(entry, null, 1)) : String(entry));
  const names = [...new Set(runs.flatMap(Object.keys))];
  const rows = [
    ...Object.entries(shared).map(([name, entry]) => element("tr", {}, rowHead(words(name)), element("td", { colspan: Math.max(1, runs.length) }, value(entry)))),
    ...names.map((name) => element("tr", {}, rowHead(words(name)), runs.map((run, index) =>
      element("td", { "data-label": `run ${index + 1}:` }, name in run ? value(run[name]) : "")))),
  ];
  const headings = ["Entry", ...(runs.length ? runs.map((_, index) => `Run ${index + 1}`) : ["Value"])];
  section("environment", table("", headings, rows, { class: "stack" }));
}

function section(id, content) {
  if (content) byId(id).append(content);
  byId(id).hidden = !content;
  for (const link of document.querySelectorAll(`[data-section="${id}"]`)) link.hidden = !content;
}

function renderUncited() {
  if (!uncited.length) return;
  const failing = uncited.filter(isNew).length;
  const heading = `${count(uncited.length)} cases that cite no clause${failing ? `, ${count(failing)} with new failures` : ""}`;
  byId("uncited").append(branch("library", "uncited", heading, () => [caseTable(uncited)]));
}

// Addresses: "#family=convolution&rows=behind" filters the benchmarks, "#subject=reference&state=failed" filters, "#clause=ID" and "#function=NAME" open and show one entry.

function followHash() {
  if (!location.hash.includes("=")) return;
  const parameters = new URLSearchParams(location.hash.slice(1));
  setFilters({ ...Object.fromEntries(parameters), state: parameters.getAll("state") });
  setBenchFilters(Object.fromEntries(parameters));
  renderTree();
  if (benchmarks.length) renderBenchmarks();
  const clause = clauseById.get(parameters.get("clause"));
  const name = clause?.function ?? parameters.get("function");
  if (name) showEntry(name, clause);
  else if (BENCH_FIELDS.some((field) => parameters.has(field))) byId("benchmarks").scrollIntoView();
  else byId("clauses").scrollIntoView();
}

function showEntry(name, clause) {
  const library = (clause ?? clauses.find((entry) => entry.function === name))?.library;
  const find = (kind, key) => [...document.querySelectorAll(`details.${kind}`)].find((node) => node.dataset.key === key);
  const openBranch = (node) => {
    if (!node) return;
    node.open = true;
    node.dispatchEvent(new Event("toggle")); // draw now, not when the browser gets to it
  };
  openBranch(find("library", library));
  const branchNode = find("function", `${library} ${name}`);
  openBranch(branchNode);
  const row = [...document.querySelectorAll("tr[data-clause]")].find((node) => node.dataset.clause === clause?.id);
  row?.classList.add("target");
  row?.querySelector("button[aria-expanded=false]")?.click();
  bringIntoView(row ?? branchNode ?? byId("clauses"), row ? "center" : "start");
}

// What comes into view is laid out only then, and moves what is below it: it takes a few frames to arrive.
function bringIntoView(node, block, frames = 6) {
  node.scrollIntoView({ block });
  if (frames) requestAnimationFrame(() => bringIntoView(node, block, frames - 1));
}

function changed(render) {
  history.replaceState(null, "", hashOf({ ...readFilters(), ...readBenchFilters() }));
  render();
}

function follow(fields, render) {
  let pending = 0;
  fields.addEventListener("input", (event) => {
    clearTimeout(pending);
    // Words wait for the next letter.
    if (event.target.type === "search") pending = setTimeout(() => changed(render), 120);
    else changed(render);
  });
  fields.addEventListener("submit", (event) => event.preventDefault());
}

follow(form, renderTree);
follow(benchForm, renderBenchmarks);
byId("expand").addEventListener("click", () => renderTree(true));
byId("collapse").addEventListener("click", () => {
  opened.clear();
  for (const node of document.querySelectorAll("#tree details")) node.open = false;
});
byId("reset").addEventListener("click", () => {
  setFilters({});
  changed(renderTree);
});
byId("bench-reset").addEventListener("click", () => {
  setBenchFilters({});
  changed(renderBenchmarks);
});
addEventListener("hashchange", followHash);

buildFilters();
renderOrigin();
renderState();
renderSummary();
renderSkips();
renderTree();
renderUncited();
renderErrors();
renderDifferences();
section("benchmarks", benchmarks.length ? element("div", { id: "bench-view" }) : null);
buildBenchFilters();
if (benchmarks.length) renderBenchmarks();
renderEnvironment();
followHash();
performance.mark("ready");
document.documentElement.dataset.ready = "true";
