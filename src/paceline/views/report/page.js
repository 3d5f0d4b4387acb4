// The page of a run, drawn: map, curves with one cursor, search in the logs, sorted tables. What anybody wrote is text and never HTML.
//
//   paceline.page.start(model, options)     model: paceline.page/1, parsed; options: {isLive: true} on the live page
//   paceline.page.update(model, sections)   a newer model, and {id: HTML} of sections that the server made anew
var paceline = paceline || {};
paceline.page = (() => {
  "use strict";

  const NOTHING = 0, NOT_JUDGED = 254, STOOD = 255, MOST = 253, LEVELS = 64;
  // Above the first number of ranks a row is a host, above the second number of rows a row is the worst of several.
  const MOST_RANKS = 64, MOST_ROWS = 640;
  const LANE = 16, PAGE = 100;
  const METRICS = {
    late: "how late it came to the collectives",
    step: "mean step against the median",
    slowest: "slowest step against the median",
  };
  const CURVES = [
    ["cpu_fraction", "CPU in use", percent],
    ["memory_used_bytes", "memory in use", bytes],
    ["network_in_bytes_per_second", "received", rate],
    ["network_out_bytes_per_second", "sent", rate],
    ["disk_bytes_per_second", "read and written", rate],
    ["gpu_busy_fraction", "GPUs in use", percent],
    ["gpu_memory_used_bytes", "GPU memory in use", bytes],
  ];

  const root = document.documentElement;
  const texts = new WeakMap();
  const lastHtml = new Map();
  let model = null, planes = {}, lines = [], opened = new Set(), charts = [], isDrawn = false, written = "";
  // Times are seconds since the start of the axis. `at`: where the cursor is; `row`: of `lines`.
  const view = {from: 0, to: 1, metric: "late", row: 0, at: null, find: "", rank: null};

  // ------------------------------------------------------------------------------------------------------ elements

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, String(value));
    }
    element.append(...children);
    return element;
  }

  const button = (text, click, more = {}) => make("button", {type: "button", click, ...more}, text);

  const canvas = make("canvas", {
    tabindex: 0, role: "application", "aria-roledescription": "map", "aria-describedby": "map-help",
  });
  const said = make("p", {class: "said", role: "status", "aria-live": "polite"});
  const help = make("p", {id: "map-help", class: "dim"},
    "Arrows move a cell, with Shift ten. + zooms in, Esc shows all. Enter opens the rank's log. Drag to zoom.");
  const metric = make("select", {"aria-label": "What the map shows", change: () => choose({metric: metric.value})});
  const asTable = button("table", () => { tableBox.hidden = !tableBox.hidden; asTable.setAttribute("aria-pressed", String(!tableBox.hidden)); redraw(); },
    {"aria-pressed": "false"});
  const all = button("whole run", () => zoom(0, span()));
  const moment = make("input", {
    type: "text", size: 12, placeholder: "10:33:07 or 6.5", "aria-label": "Jump to a time of day (UTC) or to seconds after the start",
    keydown: (event) => { if (event.key === "Enter") jumpToText(moment.value); },
  });
  const jump = button("jump", () => jumpToText(moment.value));
  const tableBox = make("div", {class: "box", hidden: true, tabindex: 0, role: "region", "aria-label": "The map as a table"});
  const key = make("p", {class: "dim"});
  const map = make("div", {id: "map-picture"},
    make("p", {class: "tools"}, "Show ", metric, asTable, all, moment, jump), canvas, said, key, help, tableBox);
  const paceBox = make("div", {id: "pace-picture"});
  const machinesBox = make("div", {id: "machines-picture"});
  const find = make("input", {
    type: "search", size: 24, placeholder: "words, all in one line", "aria-label": "Search in the logs", input: () => search(find.value),
  });
  const whose = make("select", {"aria-label": "Whose output", change: () => choose({rank: whose.value === "" ? null : Number(whose.value)})});
  const hits = make("span", {role: "status", class: "dim"});
  const logTools = make("p", {class: "tools"}, "Search ", find, whose, hits);
  const theme = button("dark", () => setTheme(isDark() ? "light" : "dark"), {class: "theme"});

  // ------------------------------------------------------------------------------------------------------ words

  function percent(value) { return `${Math.round(value * 100)} %`; }

  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    for (; value >= 1024 && at < units.length - 1; at++) value /= 1024;
    return `${number(value)} ${units[at]}`;
  }

  function rate(value) {
    const units = ["B/s", "kB/s", "MB/s", "GB/s"];
    let at = 0;
    for (; value >= 1000 && at < units.length - 1; at++) value /= 1000;
    return `${number(value)} ${units[at]}`;
  }

  function duration(seconds) {
    if (seconds < 1) return `${number(seconds * 1000)} ms`;
    if (seconds < 120) return `${number(seconds)} s`;
    return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${number(seconds / 3600)} h`;
  }

  function number(value) { return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(2); }

  const begin = () => model.axis.from_ns / 1e9;
  const span = () => (model.axis.to_ns - model.axis.from_ns) / 1e9;
  const width = () => span() / model.axis.columns;
  const columnAt = (seconds) => Math.min(Math.max(Math.floor(seconds / width()), 0), model.axis.columns - 1);
  const inRun = (ns) => ns / 1e9 - begin();

  function clock(seconds) {
    const text = new Date((begin() + seconds) * 1000).toISOString();
    return span() > 86400 ? text.slice(5, 16).replace("T", " ") : text.slice(11, view.to - view.from < 20 ? 21 : 19);
  }

  // ------------------------------------------------------------------------------------------------------ the map

  // Uint8Array.from with a function takes ten times as long, and a wide map has a million cells.
  function bytesOf(text64) {
    const text = atob(text64), found = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) found[at] = text.charCodeAt(at);
    return found;
  }

  function unpack() {
    planes = {};
    for (const [name, plane] of Object.entries(model.grid.planes)) {
      planes[name] = {encoding: plane.encoding, cells: bytesOf(plane.cells64)};
    }
    // Of a slow job a finding may name the ranks that are slowed, and none of them is late.
    const named = model.verdict.findings.filter((finding) => finding.level !== "slow").flatMap((finding) => finding.ranks);
    blamed = new Set([...named, ...model.grid.late_ranks, ...model.marks.flatMap((mark) => mark.ranks)]);
    stood = new Set([
      ...model.marks.flatMap((mark) => mark.ranks),
      ...model.verdict.findings.filter((finding) => finding.level === "stall").flatMap((finding) => finding.ranks),
    ]);
    layOut();
  }
  let blamed = new Set(), stood = new Set();

  // The rows that are drawn: a rank, or a host of several ranks.
  function layOut() {
    const rows = model.grid.rows;
    lines = rows.map((row, at) => ({label: `rank ${row.rank}`, short: String(row.rank), host: row.host, members: [at]}));
    if (rows.length <= MOST_RANKS) return;
    const hosts = new Map();
    rows.forEach((row, at) => hosts.set(row.host, [...(hosts.get(row.host) || []), at]));
    lines = [...hosts].flatMap(([host, members]) => {
      const own = opened.has(host) ? members.map((at) => lines[at]) : [];
      return [{label: host, short: host.slice(-6), host, members, isHost: true}, ...own];
    });
    if (lines.length <= MOST_ROWS) return;
    const many = Math.ceil(lines.length / MOST_ROWS);
    lines = Array.from({length: Math.ceil(lines.length / many)}, (_, at) => {
      const some = lines.slice(at * many, (at + 1) * many);
      return {...some[0], label: `${some[0].label} and ${some.length - 1} more`, members: some.flatMap((line) => line.members), isHost: true};
    });
  }

  // What is not judged hides nothing that is, and is more than nothing.
  function worse(one, other) {
    if (one === NOT_JUDGED) return other === NOTHING ? one : other;
    if (other === NOT_JUDGED) return one === NOTHING ? other : one;
    return one > other ? one : other;
  }

  // The worst of the members in each part of the time: one slow rank of many must not vanish.
  function cellsOf(line) {
    const cells = planes[view.metric].cells, columns = model.axis.columns, found = new Uint8Array(columns);
    for (const member of line.members) {
      for (let column = 0, at = member * columns; column < columns; column++, at++) found[column] = worse(found[column], cells[at]);
    }
    return found;
  }

  const isBlamed = (line, set = blamed) => line.members.some((at) => set.has(model.grid.rows[at].rank));

  function colour(name) {
    const text = getComputedStyle(root).getPropertyValue(name).trim();
    return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  }

  // As a picture has it in memory: every machine that shows pages is little-endian.
  const pixel = ([red, green, blue]) => (0xff000000 | blue << 16 | green << 8 | red) >>> 0;

  const between = (low, high, share) => low.map((one, at) => Math.round(one + (high[at] - one) * share));

  function palette() {
    const low = colour("--cell-low"), high = colour("--cell-high"), fast = colour("--cell-fast");
    const colours = Array(256).fill(colour("--panel"));
    if (planes[view.metric].encoding === "u8-share") {
      const most = 1 + model.grid.darkest_share * (MOST - 1);
      for (let cell = 1; cell <= MOST; cell++) colours[cell] = between(low, high, Math.min((cell - 1) / (most - 1), 1));
    } else {
      for (let cell = 1; cell <= LEVELS; cell++) {
        const away = (cell - 1) / (LEVELS - 1) * 2 - 1;
        colours[cell] = between(low, away < 0 ? fast : high, Math.abs(away));
      }
    }
    colours[NOT_JUDGED] = colour("--not-judged");
    colours[STOOD] = colour("--stood");
    return colours.map(pixel);
  }

  // One pixel a cell; drawing scales it.
  function image() {
    const columns = model.axis.columns, colours = palette(), waits = pixel(colour("--waits")), ground = pixel(colour("--ground"));
    const picture = make("canvas", {width: columns, height: Math.max(lines.length, 1)});
    const context = picture.getContext("2d"), data = context.createImageData(picture.width, picture.height);
    const pixels = new Uint32Array(data.data.buffer);
    lines.forEach((line, row) => {
      const keepsOthers = !stood.size || isBlamed(line, stood), cells = cellsOf(line);
      for (let column = 0; column < columns; column++) {
        const cell = cells[column];
        pixels[row * columns + column] = cell === STOOD && !keepsOthers ? waits
          : cell === NOT_JUDGED && column % 2 ? ground : colours[cell];
      }
    });
    context.putImageData(data, 0, 0);
    return picture;
  }
  let picture = null;

  const isNarrow = () => map.clientWidth < 560;
  const left = () => (isNarrow() ? 46 : 76);
  const rowHeight = () => Math.max(Math.min(22, Math.floor(480 / Math.max(lines.length, 1))), 1);
  const xOf = (seconds) => left() + (seconds - view.from) / (view.to - view.from) * (canvas.clientWidth - left());

  function drawMap() {
    const wide = map.clientWidth, high = LANE + lines.length * rowHeight() + 18;
    if (!wide || !lines.length) return;
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(root);
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.height = `${high}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    const columns = model.axis.columns, first = view.from / width(), count = (view.to - view.from) / width();
    context.drawImage(picture, first, 0, Math.min(count, columns - first), lines.length, left(), LANE, wide - left(), lines.length * rowHeight());
    context.font = `${Math.min(12, Math.max(rowHeight() - 2, 8))}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const ink = style.getPropertyValue("--text"), bad = style.getPropertyValue("--bad"), dim = style.getPropertyValue("--dim");
    lines.forEach((line, at) => {
      const y = LANE + at * rowHeight();
      if (rowHeight() >= 6) {
        context.fillStyle = style.getPropertyValue("--ground");
        context.fillRect(left(), y + rowHeight() - 1, wide - left(), 1);
      }
      if (rowHeight() < 9 && at % Math.ceil(10 / rowHeight())) return;
      context.fillStyle = isBlamed(line) ? bad : dim;
      context.textAlign = "right";
      context.fillText((isBlamed(line) ? "\u25b8 " : "") + (isNarrow() ? line.short : line.label), left() - 6, y + rowHeight() / 2, left() - 8);
    });
    drawMarks(context, high, style);
    drawTimes(context, high, dim);
    if (view.at !== null) {
      context.fillStyle = ink;
      context.fillRect(xOf(view.at), 0, 1, high - 16);
    }
    if (document.activeElement === canvas && view.at !== null) {
      const column = columnAt(view.at), x = xOf(column * width());
      context.strokeStyle = ink;
      context.lineWidth = 2;
      context.strokeRect(x, LANE + view.row * rowHeight(), Math.max(xOf((column + 1) * width()) - x, 4), rowHeight());
    }
  }

  function drawMarks(context, high, style) {
    context.save();
    context.beginPath();
    context.rect(left(), 0, canvas.clientWidth - left(), high);
    context.clip();
    for (const mark of model.marks) {
      const x = xOf(inRun(mark.t_ns));
      context.fillStyle = style.getPropertyValue("--bad");
      if (mark.until_ns !== null) {
        context.fillRect(x, LANE - 6, Math.max(xOf(inRun(mark.until_ns)) - x, 2), 4);
      } else {
        context.fillRect(x - 3, LANE - 9, 7, 7);
        context.globalAlpha = 0.45;
        context.fillRect(x, LANE, 1, high - LANE - 18);
        context.globalAlpha = 1;
      }
    }
    context.restore();
  }

  function drawTimes(context, high, dim) {
    context.fillStyle = dim;
    context.font = "11px system-ui, sans-serif";
    const texts = [view.from, (view.from + view.to) / 2, view.to].map(clock);
    const places = [[left(), "left"], [(left() + canvas.clientWidth) / 2, "center"], [canvas.clientWidth, "right"]];
    places.forEach(([x, align], at) => {
      context.textAlign = align;
      if (at !== 1 || canvas.clientWidth > 420) context.fillText(texts[at] + (at === 0 ? " UTC" : ""), x, high - 7);
    });
  }

  function meaning(line, cell) {
    if (cell === NOTHING) return "nothing is recorded here";
    if (cell === STOOD) {
      return stood.size && !isBlamed(line, stood) ? "it waited: no step ended here" : "it stood still: no step ended here";
    }
    if (cell === NOT_JUDGED) return "how late it came is not known here";
    const base = model.grid.base_seconds;
    if (planes[view.metric].encoding === "u8-share") {
      const share = (cell - 1) / (MOST - 1);
      return `${share.toFixed(2)} of a step later than the first rank` + (base ? `, about ${duration(share * base)}` : "");
    }
    const times = 2 ** ((cell - 1) / (LEVELS - 1) * 6 - 3);
    return `${duration(times * base)}, ${times.toFixed(1)} times the median step`;
  }

  function sentence() {
    const line = lines[view.row];
    if (!line || view.at === null) return "";
    const who = line.isHost ? `${line.label}, the worst of ${line.members.length} ranks` : `${line.label} on ${line.host}`;
    return `${who}, ${clock(view.at)} UTC (${duration(view.at)} in): ${meaning(line, cellsOf(line)[columnAt(view.at)])}`;
  }

  // A pointer moves too often for a reader of the screen.
  function say(isSpoken) {
    said.setAttribute("aria-live", isSpoken ? "polite" : "off");
    said.textContent = sentence();
  }

  function legend() {
    const item = (name, text) => make("span", {class: "item"}, make("span", {class: `key ${name}`}), text);
    const words = view.metric === "late" ? `the darker, the later; the darkest is ${percent(model.grid.darkest_share)} of a step`
      : "blue: faster, brown: slower than the median; the darkest: 8 times";
    key.replaceChildren(item("shade", words), item("stood", "it stood: no step ended"),
      ...(stood.size ? [item("waits", "it waited for that rank")] : []),
      item("unjudged", "not judged"), item("empty", "not recorded"), "; \u25b8 late, or named by a finding");
  }

  function fillTable() {
    if (tableBox.hidden) return;
    const parts = 10, from = columnAt(view.from), to = columnAt(view.to - width() / 2) + 1;
    const edges = Array.from({length: parts + 1}, (_, at) => Math.round(from + (to - from) * at / parts));
    const rows = lines.map((line) => {
      const every = cellsOf(line);
      return {line, cells: edges.slice(0, -1).map((low, at) => every.subarray(low, Math.max(edges[at + 1], low + 1)).reduce(worse, NOTHING))};
    });
    const weight = (row) => row.cells.reduce((sum, cell) => sum + (cell === NOT_JUDGED ? 0 : cell), 0);
    rows.sort((one, other) => weight(other) - weight(one));
    const brief = (line, cell) => cell === NOTHING ? "-" : cell === NOT_JUDGED ? "not judged"
      : cell === STOOD ? (stood.size && !isBlamed(line, stood) ? "waited" : "stood")
        : planes[view.metric].encoding === "u8-share" ? percent((cell - 1) / (MOST - 1)) : `${(2 ** ((cell - 1) / (LEVELS - 1) * 6 - 3)).toFixed(1)} x`;
    tableBox.replaceChildren(make("table", {},
      make("caption", {}, `The ${Math.min(10, rows.length)} worst rows, ${METRICS[view.metric]}, the worst in each tenth of the time`),
      make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "rank"), ...edges.slice(0, -1).map((low) => make("th", {scope: "col"}, clock(low * width()))))),
      make("tbody", {}, ...rows.slice(0, 10).map(({line, cells}) =>
        make("tr", {}, make("th", {scope: "row"}, line.label), ...cells.map((cell) => make("td", {}, brief(line, cell))))))));
  }

  // ------------------------------------------------------------------------------------------------------ curves

  const colours = () => Array.from({length: 8}, (_, at) => getComputedStyle(root).getPropertyValue(`--line-${at + 1}`).trim());

  function chart(box, title, names, values, spell) {
    const style = getComputedStyle(root), hues = colours();
    const now = make("span", {class: "dim reading"});
    const place = make("div", {class: "chart", role: "img", "aria-label": `${title}: ${names.slice(0, 8).join(", ")}`});
    box.append(make("p", {class: "title"}, make("b", {}, title), now), place);
    const axis = {stroke: style.getPropertyValue("--dim"), grid: {stroke: style.getPropertyValue("--line"), width: 1}, ticks: {show: false}, font: "11px system-ui, sans-serif"};
    const x = Array.from({length: model.axis.columns}, (_, column) => (column + 0.5) * width());
    const plot = new uPlot({
      width: box.clientWidth, height: 120, legend: {show: false}, padding: [8, 0, 0, 0],
      cursor: {y: false, drag: {x: true, y: false, setScale: false}},
      scales: {x: {time: false}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1]}},
      axes: [
        {...axis, values: (_, ticks) => ticks.map(clock), space: 90, size: 24},
        {...axis, values: (_, ticks) => ticks.map(spell), size: left(), space: 28},
      ],
      series: [{}, ...names.map((name, at) => ({label: name, stroke: hues[at % hues.length], width: 1.5, points: {show: false}}))],
      hooks: {
        setSelect: [(one) => {
          if (one.select.width < 4) return;
          zoom(one.posToVal(one.select.left, "x"), one.posToVal(one.select.left + one.select.width, "x"));
          one.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
        }],
      },
    }, [x, ...values], place);
    plot.over.addEventListener("pointermove", (event) => point(plot.posToVal(event.offsetX, "x")));
    plot.over.addEventListener("dblclick", () => zoom(0, span()));
    charts.push({plot, now, names, values, spell, hues});
  }

  function buildCharts() {
    for (const {plot} of charts) plot.destroy();
    charts = [];
    paceBox.replaceChildren();
    machinesBox.replaceChildren();
    const isKnown = (values) => values.some((value) => value !== null);
    const {mean_seconds: mean, longest_seconds: longest} = model.pace;
    if (isKnown(mean)) chart(paceBox, "A step over the time", ["mean of all ranks", "longest of any rank"], [mean, longest], duration);
    for (const [name, title, spell] of CURVES) {
      const hosts = model.machines.filter((machine) => isKnown(machine[name]));
      if (hosts.length) chart(machinesBox, title, hosts.map((machine) => machine.host), hosts.map((machine) => machine[name]), spell);
    }
    if (!charts.some((one) => machinesBox.contains(one.plot.root))) machinesBox.append(make("p", {}, "No sample of a host is in this recording."));
    for (const machine of model.machines) {
      if (!CURVES.some(([name]) => isKnown(machine[name]))) machinesBox.append(make("p", {}, `${machine.host}: no sample of it is in this recording.`));
    }
    scaleCharts();
  }

  function scaleCharts() {
    for (const {plot} of charts) plot.setScale("x", {min: view.from, max: view.to});
    readCharts();
  }

  // What each curve says at the cursor; of many hosts only the highest.
  function readCharts() {
    const column = view.at === null ? null : columnAt(view.at);
    for (const {now, names, values, spell, hues} of charts) {
      const at = values.map((one) => (column === null ? null : one[column]));
      const text = (place) => names[place] + (at[place] === null ? "" : ` ${spell(at[place])}`);
      if (names.length <= hues.length) {
        now.replaceChildren(...names.flatMap((_, place) => [make("span", {class: `key line-${place + 1}`}), text(place)]));
      } else {
        const highest = at.reduce((best, value, place) => (value !== null && (best === null || value > at[best]) ? place : best), null);
        now.replaceChildren(highest === null ? `${names.length} hosts` : `${names.length} hosts, highest ${text(highest)}`);
      }
    }
  }

  function moveCursors() {
    for (const {plot} of charts) plot.setCursor({left: view.at === null ? -10 : plot.valToPos(view.at, "x"), top: 0}, false);
  }

  // ------------------------------------------------------------------------------------------------------ moving about

  let isWaiting = false;
  function redraw() {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; drawMap(); fillTable(); });
  }

  function point(seconds, isSpoken = false) {
    view.at = Math.min(Math.max(seconds, 0), span() * 0.999999);
    moveCursors();
    readCharts();
    say(isSpoken);
    redraw();
  }

  function zoom(from, to) {
    const least = 4 * width();
    view.from = Math.max(Math.min(from, span() - least), 0);
    view.to = Math.min(Math.max(to, view.from + least), span());
    scaleCharts();
    moveCursors();
    redraw();
    keep();
  }

  function choose(change) {
    Object.assign(view, change);
    picture = image();
    metric.value = view.metric;
    whose.value = view.rank === null ? "" : String(view.rank);
    legend();
    search(view.find);
    redraw();
    keep();
  }

  function jumpToText(text) {
    const found = /^(?:(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))?|\+?(\d+(?:\.\d+)?) ?s?)$/.exec(text.trim());
    moment.setAttribute("aria-invalid", String(!found));
    if (!found) { said.setAttribute("aria-live", "polite"); said.textContent = "A time is 10:33:07 (UTC), or seconds after the start such as 6.5."; return; }
    if (found[4] !== undefined) { jumpTo(Number(found[4])); return; }
    const day = new Date(begin() * 1000).setUTCHours(0, 0, 0, 0) / 1000;
    let seconds = day + found[1] * 3600 + found[2] * 60 + Number(found[3] || 0) - begin();
    if (seconds < -width()) seconds += 86400;
    jumpTo(seconds);
  }

  function jumpTo(seconds) {
    if (seconds < view.from || seconds > view.to) zoom(0, span());
    point(seconds, true);
    markEvents();
    keep();
  }

  // The log of that rank, at the line that came last before the cursor.
  function openRank(rank) {
    find.value = "";
    choose({rank, find: ""});
    document.getElementById("logs").scrollIntoView();
    const pres = [...document.querySelectorAll("#log-texts pre")].filter((pre) => Number(pre.dataset.rank) === rank);
    const ranges = view.at === null ? [] : pres.map((pre) => lineAt(pre, view.at)).filter(Boolean);
    if (typeof Highlight === "function") CSS.highlights.set("moment", new Highlight(...ranges));
    for (const range of ranges) {
      const pre = range.startContainer.parentElement;
      pre.closest("details").open = true;
      pre.scrollTop += range.getBoundingClientRect().top - pre.getBoundingClientRect().top - pre.clientHeight / 3;
    }
    find.focus({preventScroll: true});
  }

  function lineAt(pre, seconds) {
    const known = (pre.dataset.times || "").split(",").map((pair) => pair.split(" ").map(Number)).filter(([, at]) => at <= seconds);
    if (!known.length || !pre.firstChild) return null;
    const every = pre.textContent.split("\n"), line = Math.min(known[known.length - 1][0], every.length - 1);
    const from = every.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0), range = document.createRange();
    range.setStart(pre.firstChild, from);
    range.setEnd(pre.firstChild, from + every[line].length);
    return range;
  }

  // The state that a colleague needs is in the fragment, which no server sees.
  function keep() {
    if (!isDrawn) return;
    const parts = new URLSearchParams();
    if (view.from > 0 || view.to < span()) { parts.set("from", view.from.toFixed(2)); parts.set("to", view.to.toFixed(2)); }
    if (view.at !== null) parts.set("at", view.at.toFixed(2));
    if (view.metric !== firstMetric()) parts.set("metric", view.metric);
    if (view.rank !== null) parts.set("rank", view.rank);
    if (view.find) parts.set("find", view.find);
    written = String(parts);
    // A link to a section stays as it is while there is nothing to keep.
    if (!written && !location.hash.includes("=")) return;
    try { history.replaceState(null, "", `#${written}`); } catch { /* A policy of the browser: the link is then not kept. */ }
  }

  function takeFragment() {
    const text = location.hash.slice(1);
    if (!text.includes("=") || text === written) return;
    const parts = new URLSearchParams(text), seconds = (name) => (parts.has(name) && Number.isFinite(Number(parts.get(name))) ? Number(parts.get(name)) : null);
    const rank = parts.has("rank") && model.grid.rows.some((row) => row.rank === Number(parts.get("rank"))) ? Number(parts.get("rank")) : null;
    view.find = find.value = parts.get("find") || "";
    if (rank !== null) view.row = Math.max(lines.findIndex((line) => line.members.some((at) => model.grid.rows[at].rank === rank)), 0);
    choose({rank, metric: Object.hasOwn(planes, parts.get("metric") || "") ? parts.get("metric") : firstMetric()});
    if (seconds("from") !== null && seconds("to") !== null) zoom(seconds("from"), seconds("to"));
    if (seconds("at") !== null) { point(seconds("at")); markEvents(); }
  }

  const firstMetric = () => (model.grid.rows.length === 1 ? "step" : "late");

  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  function setTheme(name) {
    root.dataset.theme = name;
    repaint();
  }

  function repaint() {
    theme.textContent = isDark() ? "light" : "dark";
    picture = image();
    buildCharts();
    moveCursors();
    redraw();
  }

  // ------------------------------------------------------------------------------------------------------ events of the map

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    const seconds = view.from + (event.clientX - box.left - left()) / (box.width - left()) * (view.to - view.from);
    return {seconds, row: Math.min(Math.max(Math.floor((event.clientY - box.top - LANE) / rowHeight()), 0), lines.length - 1)};
  }

  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => { grabbed = placeOf(event).seconds; });
  canvas.addEventListener("pointermove", (event) => {
    const {seconds, row} = placeOf(event);
    view.row = row;
    point(Math.min(Math.max(seconds, view.from), view.to));
  });
  canvas.addEventListener("pointerup", (event) => {
    const {seconds} = placeOf(event);
    if (grabbed !== null && Math.abs(seconds - grabbed) > (view.to - view.from) / 50) zoom(Math.min(seconds, grabbed), Math.max(seconds, grabbed));
    else keep();
    grabbed = null;
  });
  canvas.addEventListener("dblclick", () => zoom(0, span()));
  canvas.addEventListener("focus", () => { if (view.at === null) point(view.from + (view.to - view.from) / 2, true); else redraw(); });
  canvas.addEventListener("blur", redraw);
  canvas.addEventListener("keydown", (event) => {
    const many = event.shiftKey ? 10 : 1, at = view.at === null ? view.from : view.at;
    const rows = {ArrowUp: -many, ArrowDown: many}[event.key], columns = {ArrowLeft: -many, ArrowRight: many}[event.key];
    if (rows) view.row = Math.min(Math.max(view.row + rows, 0), lines.length - 1);
    if (rows || columns) point((columnAt(at) + 0.5 + (columns || 0)) * width(), true);
    else if (event.key === "Home" || event.key === "End") point(event.key === "Home" ? view.from : view.to - width() / 2, true);
    else if (event.key === "+" || event.key === "=") zoom(at - (view.to - view.from) / 4, at + (view.to - view.from) / 4);
    else if (event.key === "-" || event.key === "Escape") zoom(0, span());
    else if (event.key === "Enter") openLine(lines[view.row]);
    else return;
    if (view.at !== null && (view.at < view.from || view.at > view.to)) zoom(view.at - (view.to - view.from) / 2, view.at + (view.to - view.from) / 2);
    event.preventDefault();
  });

  function openLine(line) {
    if (!line.isHost) { openRank(model.grid.rows[line.members[0]].rank); return; }
    if (!opened.delete(line.host)) opened.add(line.host);
    layOut();
    picture = image();
    redraw();
  }

  // ------------------------------------------------------------------------------------------------------ logs, tables, findings

  // Plain words, all of which must be in the line.
  function search(text) {
    view.find = text;
    const words = text.toLowerCase().split(" ").filter(Boolean);
    let shown = 0, whole = 0;
    for (const pre of document.querySelectorAll("#log-texts pre")) {
      if (!texts.has(pre)) texts.set(pre, pre.textContent);
      const plain = texts.get(pre), isChosen = view.rank === null || Number(pre.dataset.rank) === view.rank, box = pre.closest("details");
      const every = plain.split("\n"), found = words.length ? every.filter((line) => { const low = line.toLowerCase(); return words.every((word) => low.includes(word)); }) : every;
      box.hidden = !isChosen || (words.length > 0 && !found.length);
      if (isChosen) { whole += every.length; shown += found.length; }
      if (isChosen && words.length && found.length) box.open = true;
      if (pre.textContent.length !== plain.length || words.length) pre.textContent = words.length ? found.join("\n") : plain;
    }
    hits.textContent = words.length ? `${shown} of ${whole} lines` : "";
    keep();
  }

  function markEvents() {
    const rows = [...document.querySelectorAll("#events tr[data-at]")];
    let nearest = null;
    for (const row of rows) {
      row.classList.remove("near");
      const away = Math.abs(inRun(Number(row.dataset.at)) - view.at);
      if (nearest === null || away < nearest.away) nearest = {row, away};
    }
    if (nearest) nearest.row.classList.add("near");
  }

  function sortBy(table, column, head) {
    const isDown = head.getAttribute("aria-sort") !== "descending", body = table.tBodies[0];
    for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    // "12 400" and "54%" are numbers where the column has numbers; what is not known comes last.
    const valueOf = (row) => {
      const cell = row.cells[column], text = cell.textContent;
      if (row.dataset.at && column === 0) return Number(row.dataset.at);
      if (!cell.classList.contains("number")) return text;
      const value = Number.parseFloat(text.replace(/[\s,]/g, ""));
      return Number.isNaN(value) ? -Infinity : value;
    };
    const rows = [...body.rows].map((row) => [valueOf(row), row]);
    const order = ([one], [other]) => (one < other ? -1 : one > other ? 1 : 0);
    rows.sort((one, other) => (isDown ? order(other, one) : order(one, other)));
    body.append(...rows.map(([, row]) => row));
    page(table);
  }

  function page(table) {
    const rows = [...table.tBodies[0].rows], most = Number(table.dataset.most || PAGE);
    rows.forEach((row, at) => { row.hidden = at >= most; });
    table.parentNode.querySelector(".more")?.remove();
    if (rows.length > most) table.after(button(`${rows.length - most} more rows`, () => { table.dataset.most = most + PAGE; page(table); }, {class: "more"}));
  }

  // What the script adds to HTML that the server made; a second time it finds nothing to add.
  function decorate() {
    for (const table of document.querySelectorAll("main table")) {
      if (table.dataset.sorts || map.contains(table) || !table.tHead) continue;
      table.dataset.sorts = "1";
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        const text = head.textContent;
        head.replaceChildren(button(text, () => sortBy(table, column, head), {class: "sorts"}));
      });
      page(table);
    }
    for (const row of document.querySelectorAll("#events tr[data-at]")) {
      const cell = row.cells[0];
      if (cell.querySelector("button")) continue;
      const text = cell.textContent;
      cell.replaceChildren(button(text, () => { jumpTo(inRun(Number(row.dataset.at))); document.getElementById("map").scrollIntoView(); }, {class: "sorts"}));
    }
    document.querySelectorAll(".finding").forEach((box, at) => {
      const finding = model.verdict.findings[at];
      if (!finding || !finding.ranks.length || box.querySelector("button")) return;
      box.append(button("show on the map", () => showFinding(finding)));
    });
    mount("map-picture", map);
    mount("pace-picture", paceBox);
    mount("machines-picture", machinesBox);
    const logs = document.getElementById("log-texts");
    if (logs && logs.previousElementSibling !== logTools) logs.before(logTools);
    const nav = document.querySelector("nav");
    if (nav && !nav.contains(theme)) nav.append(theme);
    const ranks = [...new Set([...document.querySelectorAll("#log-texts pre")].map((pre) => pre.dataset.rank))].sort((one, other) => one - other);
    whose.replaceChildren(make("option", {value: ""}, "all ranks"), ...ranks.map((rank) => make("option", {value: rank}, `rank ${rank}`)));
    whose.value = view.rank === null ? "" : String(view.rank);
  }

  function mount(id, element) {
    const there = document.getElementById(id);
    if (there && there !== element) there.replaceWith(element);
  }

  function showFinding(finding) {
    const row = lines.findIndex((line) => line.members.some((at) => finding.ranks.includes(model.grid.rows[at].rank)));
    const mark = model.marks.find((one) => one.until_ns !== null && one.ranks.some((rank) => finding.ranks.includes(rank)));
    view.row = Math.max(row, 0);
    if (mark) {
      const from = inRun(mark.t_ns), to = inRun(mark.until_ns);
      zoom(from - (to - from), to + (to - from) / 2);
    }
    point(mark ? (inRun(mark.t_ns) + inRun(mark.until_ns)) / 2 : span() * 0.9, true);
    document.getElementById("map").scrollIntoView();
    canvas.focus({preventScroll: true});
  }

  // ------------------------------------------------------------------------------------------------------ start and update

  function take(newer) {
    const isAll = model === null || (view.from === 0 && view.to >= span());
    const from = model === null ? 0 : begin() + view.from, to = model === null ? 0 : begin() + view.to, at = view.at === null ? null : begin() + view.at;
    model = newer;
    if (isAll) { view.from = 0; view.to = span(); } else {
      view.from = Math.max(from - begin(), 0);
      view.to = Math.min(Math.max(to - begin(), view.from + width()), span());
    }
    if (at !== null) view.at = Math.min(Math.max(at - begin(), 0), span());
    unpack();
    view.row = Math.min(view.row, Math.max(lines.length - 1, 0));
    if (!Object.hasOwn(planes, view.metric)) view.metric = firstMetric();
  }

  function show() {
    const known = Object.keys(planes).filter((name) => Object.hasOwn(METRICS, name));
    metric.replaceChildren(...known.map((name) => make("option", {value: name}, METRICS[name])));
    metric.value = view.metric;
    canvas.setAttribute("aria-label", `${model.grid.rows.length} ranks over the time: ${METRICS[view.metric]}`);
    for (const element of [map, paceBox]) element.hidden = !model.grid.rows.length;
    decorate();
    legend();
    repaint();
    search(view.find);
    if (view.at !== null) { say(false); markEvents(); }
  }

  function start(first, options = {}) {
    if (first.schema !== "paceline.page/1") throw new Error(`this page reads paceline.page/1, and not ${first.schema}`);
    root.dataset.script = options.isLive ? "live" : "file";
    take(first);
    view.metric = firstMetric();
    show();
    isDrawn = true;
    takeFragment();
    addEventListener("hashchange", takeFragment);
    new ResizeObserver(() => { if (map.clientWidth !== lastWidth) { lastWidth = map.clientWidth; repaint(); } }).observe(document.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    drawMap();
    root.dataset.ready = "";
  }
  let lastWidth = 0;

  function update(newer, sections = {}) {
    const focused = document.activeElement;
    for (const [id, html] of Object.entries(sections)) {
      const there = document.getElementById(id);
      if (!there || lastHtml.get(id) === html) continue;
      lastHtml.set(id, html);
      const fresh = new DOMParser().parseFromString(html, "text/html").getElementById(id);
      if (!fresh) continue;
      const open = [...there.querySelectorAll("details")].map((one) => one.open);
      fresh.querySelectorAll("details").forEach((one, at) => { if (at < open.length) one.open = open[at]; });
      there.replaceWith(document.adoptNode(fresh));
    }
    take(newer);
    show();
    if (focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
  }

  // The model of a file is in the file.
  async function startFromFile() {
    const packed = document.getElementById("model");
    if (!packed || typeof DecompressionStream === "undefined") return;
    const plain = new Blob([bytesOf(packed.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    start(JSON.parse(await new Response(plain).text()));
  }
  startFromFile();

  return {start, update};
})();
