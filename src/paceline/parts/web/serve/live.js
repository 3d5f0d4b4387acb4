"use strict";
// The live pages. The server makes HTML, this script asks what changed, once a second and only while the tab is seen, and exchanges it.
// Text from the server becomes a document that runs nothing, or text; no string is ever assigned as HTML.
(() => {
  const {page: kind, up} = document.body.dataset;
  const base = new URL(up || ".", location.href).pathname;
  const SILENT_MS = 6000, POLL_MS = 1000, ENDED_POLL_MS = 5000;

  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") made.addEventListener(name, value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  };
  const byId = (id) => document.getElementById(id);

  // ------------------------------------------------------------------------------------------------------------ token

  // The token comes in the fragment, which no server sees, and leaves the address bar at once.
  const KEY = `paceline ${base}`;
  function takeToken() {
    const fragment = new URLSearchParams(location.hash.slice(1));
    const given = fragment.get("k");
    if (given === null) return;
    sessionStorage.setItem(KEY, given);
    fragment.delete("k");
    const rest = fragment.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }

  class Refused extends Error {}

  async function ask(path, {method = "GET", body, ...parameters} = {}) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined));
    const headers = {Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`};
    const asked = `${up}api/${path}${query.size ? `?${query}` : ""}`;
    const answer = await fetch(asked, {method, headers, body, redirect: "error", credentials: "omit"});
    if (answer.ok) return answer;
    if (answer.status === 401) wantToken();
    const text = await answer.text();
    throw new Refused(answer.headers.get("Content-Type") === "application/json" ? refusalText(JSON.parse(text)) : text.trim());
  }
  const askJson = async (path, options) => (await ask(path, options)).json();

  function refusalText(error) {
    return error?.what ? [error.what, error.saw, error.next && `next: ${error.next}`].filter(Boolean).join("; ") : "the server refused";
  }

  // ----------------------------------------------------------------------------------------------------------- exchange

  // What page.js draws into a section stays in it.
  const DRAWN = ["map-picture", "pace-picture", "machines-picture"];
  let isDrawn = false;

  const titleOf = (details) => details.querySelector("summary")?.textContent.replace(/\d[\d,.]*/g, "#") ?? "";
  const isBeingSelected = (root) => {
    const selection = getSelection();
    return !selection.isCollapsed && root.contains(selection.anchorNode);
  };
  const sortOf = (table) => {
    const at = [...table.tHead?.rows[0]?.cells ?? []].findIndex((one) => ["ascending", "descending"].includes(one.getAttribute("aria-sort")));
    return at < 0 ? null : {at, order: table.tHead.rows[0].cells[at].getAttribute("aria-sort")};
  };
  const parsed = (html) => new DOMParser().parseFromString(html, "text/html").body.firstElementChild;

  // What a reader has opened, scrolled, sorted or marked stays as it is. Returns what is to be done once page.js has drawn.
  function exchange(there, html) {
    const fresh = parsed(html);
    if (!fresh) return () => {};
    const open = new Map([...there.querySelectorAll("details")].map((one) => [titleOf(one), one.open]));
    fresh.querySelectorAll("details").forEach((one) => { one.open = open.get(titleOf(one)) ?? one.open; });
    const scrolled = [...there.querySelectorAll("pre, .box")].map((one) => [one.scrollTop, one.scrollLeft]);
    const tables = [...there.querySelectorAll("table")].map((one) => ({most: one.dataset.most, sort: sortOf(one)}));
    fresh.querySelectorAll("table").forEach((one, at) => { if (tables[at]?.most) one.dataset.most = tables[at].most; });
    if (isDrawn) {
      for (const id of DRAWN) {
        const drawn = there.querySelector(`#${id}`), place = fresh.querySelector(`#${id}`);
        if (drawn && place) place.replaceWith(drawn);
      }
    }
    there.replaceChildren(...fresh.childNodes);
    there.className = fresh.className;
    there.querySelectorAll("pre, .box").forEach((one, at) => {
      if (at < scrolled.length) [one.scrollTop, one.scrollLeft] = scrolled[at];
    });
    return () => there.querySelectorAll("table").forEach((one, at) => {
      const sort = tables[at]?.sort, button = sort && one.tHead?.rows[0]?.cells[sort.at]?.querySelector("button.sorts");
      for (let click = 0; button && click < 2 && sortOf(one)?.order !== sort.order; click++) button.click();
    });
  }

  // Exchanges all of these at once; focus and place on the page stay. `draw` is called between.
  const waiting = new Map();
  function exchangeAll(texts, parentOf, draw = () => {}) {
    const focused = document.activeElement;
    const path = [];
    for (let one = focused; one?.parentElement && !one.id; one = one.parentElement) path.unshift([...one.parentElement.children].indexOf(one));
    const holder = focused?.closest("[id]");
    const top = [...document.querySelectorAll("section")].find((one) => one.getBoundingClientRect().bottom > 0);
    const before = top?.getBoundingClientRect().top;
    const later = [];
    for (const [id, html] of new Map([...(parentOf ? waiting : []), ...Object.entries(texts)])) {
      const there = byId(id);
      waiting.delete(id);
      if (!there) {
        const made = document.adoptNode(parsed(html));
        made.id = id;
        parentOf(id).append(made);
      } else if (isBeingSelected(there)) waiting.set(id, html);
      else later.push(exchange(there, html));
    }
    draw();
    for (const action of later) action();
    if (focused && focused !== document.activeElement && focused !== document.body) {
      const again = focused.isConnected ? focused : holder && path.reduce((one, at) => one?.children[at], byId(holder.id));
      again?.focus({preventScroll: true});
    }
    if (before !== undefined && top.isConnected && scrollY > 0) scrollBy({top: top.getBoundingClientRect().top - before, behavior: "instant"});
  }

  // ------------------------------------------------------------------------------------------------------------- polling

  const bar = byId("live");
  const told = make("span", {role: "status"});
  const age = make("span");
  let heard = performance.now(), isSilent = false, failure = "", lasts = true, hasToken = true, behind = 0, now = "";

  function say() {
    const silent = performance.now() - heard;
    const isNow = silent > SILENT_MS && !document.hidden;
    document.documentElement.classList.toggle("stale", isNow);
    age.textContent = isNow ? "" : lasts ? `updated ${(behind + silent / 1000).toFixed(behind ? 0 : 1)} s ago${now}` : "this run has ended";
    const text = failure || (isNow ? `the page has not heard from its server for ${Math.floor(silent / 1000)} s` : "");
    // A screen reader is told once, not every second.
    if (isNow !== isSilent || failure !== told.dataset.failure || !isNow) {
      if (told.textContent !== text) told.textContent = text;
    }
    isSilent = isNow;
    told.dataset.failure = failure;
    bar.dataset.state = failure || isNow ? "silent" : lasts ? "live" : "ended";
  }

  function wantToken() {
    if (!hasToken) return;
    hasToken = false;
    const field = make("input", {type: "password", autocomplete: "off", id: "token", size: "40"});
    const form = make("form", {submit: (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, field.value.trim().replace(/^.*#k=/, ""));
      location.reload();
    }}, make("label", {for: "token"}, "Open the address that paceline web printed, or give its token: "), field, " ", make("button", {}, "Open"));
    bar.replaceChildren(form);
    document.documentElement.dataset.ready = "";
  }

  let isAsking = false, askedAt = -Infinity;
  async function poll(take) {
    const pause = lasts ? POLL_MS : ENDED_POLL_MS;
    if (isAsking || document.hidden || !hasToken || performance.now() - askedAt < pause - 100) return;
    isAsking = true;
    askedAt = performance.now();
    try {
      await take();
      heard = performance.now();
      failure = "";
    } catch (error) {
      if (error instanceof Refused) { heard = performance.now(); failure = error.message; }
    } finally {
      isAsking = false;
      if (hasToken) say();
    }
  }

  function keepAsking(take) {
    bar.replaceChildren(make("span", {class: "live", "aria-hidden": "true"}), age, told, make("a", {href: `${up || "./"}`}, "all runs"));
    const now = () => { askedAt = -Infinity; return poll(take); };
    setInterval(() => poll(take), POLL_MS);
    setInterval(() => { if (hasToken && !document.hidden) say(); }, 200);
    document.addEventListener("visibilitychange", () => { heard = performance.now(); now(); });
    now();
    return now;
  }

  // ---------------------------------------------------------------------------------------------------------------- runs

  function runsPage() {
    document.title = "paceline runs";
    const wish = {find: "", status: "", sort: "started", up: ""};
    const main = make("main", {}, make("h1", {}, "Runs"));
    const find = make("input", {type: "search", id: "find", autocomplete: "off"});
    const status = make("select", {id: "status"}, ...["", "InProgress", "Stopping", "Completed", "Failed", "Stopped"].map((one) => make("option", {value: one}, one || "any")));
    main.append(make("form", {submit: (event) => event.preventDefault()},
      make("label", {for: "find"}, "words "), find, " ", make("label", {for: "status"}, "status "), status, " ",
      make("a", {href: "compare"}, "compare two runs")));
    document.body.append(main);
    let cursor = "";
    const take = async () => {
      const answer = await askJson("runs", {...wish, after: cursor});
      cursor = answer.cursor;
      if (answer.html) exchangeAll(answer.html, () => main);
      for (const button of main.querySelectorAll("th button")) {
        const isIt = button.dataset.sort === wish.sort;
        button.closest("th").setAttribute("aria-sort", !isIt ? "none" : wish.up ? "ascending" : "descending");
      }
      document.documentElement.dataset.ready = "";
    };
    const now = keepAsking(take);
    const again = (changes) => { Object.assign(wish, changes); cursor = ""; now(); };
    let typing = 0;
    find.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => again({find: find.value}), 200); });
    status.addEventListener("change", () => again({status: status.value}));
    main.addEventListener("click", (event) => {
      const sort = event.target.closest?.("th button")?.dataset.sort;
      if (sort) again({sort, up: wish.sort === sort && !wish.up ? "1" : ""});
    });
  }

  // ------------------------------------------------------------------------------------------------------------- one run

  function runPage() {
    const id = location.pathname.split("/").pop();
    const nav = make("nav", {"aria-label": "Sections"}), main = make("main");
    const top = make("div"), after = make("div", {class: "own"});
    document.body.append(top, nav, main, after);
    const model = {};
    let cursor = "", names = [], own = null;
    const take = async () => {
      const answer = await askJson(`run/${id}/since`, {after: cursor});
      behind = answer.behind_seconds ?? 0;
      now = answer.step ? `; now at step ${answer.step}, which ended ${answer.last_step_seconds_ago.toFixed(1)} s ago` : "";
      if (answer.cursor === cursor) {
        if (waiting.size) apply({});
        return;
      }
      cursor = answer.cursor;
      names = answer.order;
      document.title = answer.title;
      lasts = !answer.ended;
      Object.assign(model, answer.model);
      apply(answer.html);
      own ??= ownSection(id, after, answer.may_stop);
      own.note(answer.note);
      own.changed();
      document.documentElement.dataset.ready = "";
    };
    function apply(texts) {
      exchangeAll(texts, (name) => (name === "head" ? top : main), () => {
        order();
        linkRanks();
        draw();
      });
    }
    function order() {
      for (const section of [...main.children]) if (!names.includes(section.id)) section.remove();
      const wanted = names.map(byId).filter((one) => one?.parentElement === main);
      if (wanted.some((one, at) => main.children[at] !== one)) main.append(...wanted);
      const titles = wanted.map((one) => [one.id, one.querySelector("h2")?.textContent ?? one.id]);
      const listed = JSON.stringify(titles);
      if (nav.dataset.listed === listed) return;
      nav.dataset.listed = listed;
      nav.replaceChildren(...titles.map(([name, title]) => make("a", {href: `#${name}`}, title)), make("a", {href: "#ask"}, "Ask"));
    }
    // The curves and the map are those of the report.
    function draw() {
      if (isDrawn) paceline.page.update({...model}, {});
      else paceline.page.start({...model}, {isLive: true});
      isDrawn = true;
    }
    keepAsking(take);
  }

  function linkRanks() {
    for (const cell of document.querySelectorAll("#ranks tbody td:first-child")) {
      const rank = cell.textContent.trim();
      if (/^\d+$/.test(rank) && !cell.querySelector("a")) cell.replaceChildren(make("a", {href: `#rank=${rank}`}, rank));
    }
  }

  // What is asked for: logs, one rank, the timeline, and where it is allowed stacks and the end.
  function ownSection(id, parent, mayStop) {
    const note = make("p", {class: "warn"});
    const result = make("p", {role: "status"});
    const attempt = async (action) => {
      try { result.textContent = (await action()) ?? ""; } catch (error) { result.textContent = error.message; }
    };
    const buttons = [make("button", {type: "button", click: () => attempt(() => download(id))}, "Download the timeline")];
    const stack = make("pre", {tabindex: "0", hidden: true, "aria-label": "Stacks now"});
    if (mayStop) buttons.push(lookButton(id, attempt, stack), stopButton(id, attempt));
    const section = make("section", {id: "ask", "aria-label": "Ask"}, make("h2", {}, "Ask"), note, make("p", {}, ...buttons), result, stack);
    const drawer = rankDrawer(id), logs = logPanel(id);
    section.append(drawer.element, logs.element);
    parent.append(section);
    return {
      note: (text) => { note.textContent = text ? `not judged: what the engine would say: ${text}` : ""; note.hidden = !text; },
      changed: () => { drawer.changed(); logs.changed(); },
    };
  }

  async function download(id) {
    const blob = await (await ask(`run/${id}/trace`)).blob();
    const link = make("a", {href: URL.createObjectURL(blob), download: `timeline-${decodeURIComponent(id)}.pftrace`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    return "Open the file at ui.perfetto.dev: it stays in your browser.";
  }

  function lookButton(id, attempt, stack) {
    return make("button", {type: "button", click: () => attempt(async () => {
      stack.textContent = (await askJson(`run/${id}/look`, {method: "POST", body: "{}"})).text;
      stack.hidden = false;
    })}, "Look where the ranks are");
  }

  function stopButton(id, attempt) {
    const button = make("button", {type: "button"}, "Stop the run");
    let isSure = false;
    button.addEventListener("click", () => {
      if (isSure) attempt(async () => (await askJson(`run/${id}/stop`, {method: "POST", body: "{}"})).text);
      isSure = !isSure;
      button.textContent = isSure ? `Really stop ${decodeURIComponent(id)}` : "Stop the run";
      if (isSure) setTimeout(() => { isSure = false; button.textContent = "Stop the run"; }, 5000);
    });
    return button;
  }

  function rankDrawer(id) {
    const content = make("div", {id: "rank-content"}), title = make("h3", {tabindex: "-1"});
    const element = make("div", {id: "rank", class: "drawer", hidden: true, role: "region", "aria-label": "One rank"},
      title, make("button", {type: "button", click: () => { shown = null; element.hidden = true; }}, "Close"), content);
    let shown = null, shownAt = 0;
    const show = async () => {
      shownAt = performance.now();
      try {
        const {html} = await askJson(`run/${id}/rank/${shown}`);
        exchangeAll({"rank-content": html});
      } catch (error) { content.textContent = error.message; }
    };
    const open = (fragment) => {
      const rank = new URLSearchParams(fragment.slice(1)).get("rank");
      if (rank === null || !/^\d+$/.test(rank) || rank === shown) return;
      shown = rank;
      title.textContent = `Rank ${rank}`;
      element.hidden = false;
      show().then(() => title.focus());
    };
    document.addEventListener("click", (event) => open(event.target.closest?.("a[href^='#rank=']")?.getAttribute("href") ?? ""));
    queueMicrotask(() => open(location.hash));
    return {element, changed: () => { if (shown !== null && performance.now() - shownAt > 2000) show(); }};
  }

  function logPanel(id) {
    const rank = make("input", {id: "log-rank", size: "6", autocomplete: "off", placeholder: "all"});
    const stream = make("select", {id: "log-stream"}, ...[["", "both"], ["out", "stdout"], ["err", "stderr"]].map(([value, text]) => make("option", {value}, text)));
    const since = make("select", {id: "log-since"}, ...[["", "the start"], ["60", "1 minute ago"], ["600", "10 minutes ago"], ["3600", "1 hour ago"]].map(([value, text]) => make("option", {value}, text)));
    const find = make("input", {id: "log-find", type: "search", autocomplete: "off"});
    const follow = make("input", {id: "log-follow", type: "checkbox"});
    const lines = make("pre", {tabindex: "0", hidden: true, "aria-label": "Lines of the logs"}), told = make("p", {role: "status", class: "dim"});
    let isAsked = false, askedFor = 0;
    const search = async () => {
      isAsked = true;
      askedFor = performance.now();
      const since_ns = since.value ? String(BigInt(Date.now() - 1000 * Number(since.value)) * 1000000n) : "";
      try {
        const answer = await askJson(`run/${id}/logs`, {rank: rank.value.trim(), stream: stream.value, find: find.value, since_ns});
        if (isBeingSelected(lines)) return;
        const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
        lines.textContent = answer.lines.map(spell).join("\n");
        lines.hidden = !answer.lines.length;
        if (isAtEnd) lines.scrollTop = lines.scrollHeight;
        const count = `${answer.lines.length} ${answer.lines.length === 1 ? "line" : "lines"}`;
        const text = [count, ...answer.left_out.map((one) => `not shown: ${one}`)].join("; ");
        if (told.textContent !== text) told.textContent = text;
      } catch (error) { told.textContent = error.message; }
    };
    const spell = (line) => {
      const time = line.t_ns === null ? "" : `${new Date(line.t_ns / 1e6).toISOString().slice(11, 19)} `;
      return `${time}[${line.rank}${line.stream === "err" ? " err" : ""}] ${line.text}`;
    };
    const element = make("form", {submit: (event) => { event.preventDefault(); search(); }},
      make("h3", {}, "Search what the ranks wrote"),
      make("label", {for: "log-find"}, "words "), find, " ", make("label", {for: "log-rank"}, "ranks "), rank, " ",
      make("label", {for: "log-stream"}, "stream "), stream, " ", make("label", {for: "log-since"}, "since "), since, " ",
      follow, make("label", {for: "log-follow"}, " follow "), make("button", {}, "Search"), told, lines);
    return {element, changed: () => { if (isAsked && follow.checked && performance.now() - askedFor > 2000) search(); }};
  }

  // ------------------------------------------------------------------------------------------------------------- compare

  function comparePage() {
    document.title = "paceline compare";
    const query = new URLSearchParams(location.search);
    const [a, b] = ["a", "b"].map((name) => make("input", {id: name, autocomplete: "off", value: query.get(name) ?? ""}));
    const form = make("form", {submit: (event) => { event.preventDefault(); location.search = new URLSearchParams({a: a.value.trim(), b: b.value.trim()}); }},
      make("label", {for: "a"}, "first run "), a, " ", make("label", {for: "b"}, "second run "), b, " ", make("button", {}, "Compare"));
    const main = make("main", {}, make("h1", {}, "Two runs"), form);
    document.body.append(main);
    lasts = false;
    bar.replaceChildren(told, make("a", {href: "./"}, "all runs"));
    const ready = () => { document.documentElement.dataset.ready = ""; };
    if (!query.get("a") || !query.get("b")) { ready(); return; }
    askJson("compare", {a: query.get("a"), b: query.get("b")})
      .then((answer) => exchangeAll(answer.html, () => main))
      .catch((error) => { told.textContent = error.message; })
      .finally(ready);
  }

  takeToken();
  addEventListener("hashchange", () => { const before = sessionStorage.getItem(KEY); takeToken(); if (before !== sessionStorage.getItem(KEY)) location.reload(); });
  ({runs: runsPage, run: runPage, compare: comparePage})[kind]();
})();
