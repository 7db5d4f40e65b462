// SPDX-License-Identifier: Apache-2.0
// page.js: the parts of a report that answer: the table of tensors with its search, one tensor's details, and the map.
// Text from the checkpoint only ever becomes text nodes and attributes, never markup.
(function () {
  'use strict';
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const FIRST_ROWS = 100, MORE_ROWS = 500;

  const count = (n) => n.toLocaleString('en');
  function size(n) {
    const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
    let k = 0;
    while (n >= 1000 && k < units.length - 1) { n /= 1000; k++; }
    return (k === 0 ? n : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)) + ' ' + units[k];
  }
  const real = (x) => x === null || x === undefined ? '' : Number.isInteger(x) && Math.abs(x) < 1e6 ? String(x) : x.toPrecision(4);
  const base = (path) => path.slice(path.lastIndexOf('/') + 1);

  function make(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const k in attributes || {}) {
      if (k.startsWith('on')) e.addEventListener(k.slice(2), attributes[k]);
      else e.setAttribute(k, attributes[k]);
    }
    e.append(...children);
    return e;
  }
  function picture(tag, attributes, ...children) {
    const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    e.append(...children);
    return e;
  }

  const tensors = data.tensors.map((t, i) => ({
    i, raw: t, name: data.layers[t.l] + t.n, low: (data.layers[t.l] + t.n).toLowerCase(), layer: t.l, dtype: data.dtypes[t.d],
    shape: t.s, elements: t.s.reduce((a, b) => a * b, 1), bytes: t.o === undefined ? t.z : 0, role: data.roles[t.r], owner: t.o,
    parts: t.k, stats: t.t, other: t.x,
  }));

  // Parts of a tensor: fn(file, first element, elements) of flat ones, fn(file, null, null, box) of others; false ends it.
  function eachPart(t, fn) {
    const p = t.raw.p, b = t.raw.b;
    let at = 0;
    for (let k = 0; p && k < p.length; k += 3) {
      for (let j = 0; j < p[k + 2]; j++) {
        if (fn(p[k] + (p[k] < 0 ? 0 : j), at, Math.min(p[k + 1], t.elements - at)) === false) return;
        at += p[k + 1];
      }
    }
    for (let k = 0; b && k < b.length; k++) if (fn(b[k][0], null, null, b[k].slice(1)) === false) return;
  }
  const boxText = (box) => {
    const axes = [];
    for (let k = 0; k < box.length; k += 2) axes.push(box[k] + ':' + (box[k] + box[k + 1]));
    return (box.length > 2 ? '[' : 'elements [') + axes.join(', ') + ']';
  };
  const fileName = (f) => f < 0 ? 'no file' : data.files[f][0];

  // ---- the table ----

  const columns = [
    { id: 'name', title: 'Tensor', of: (t) => t.name },
    { id: 'dtype', title: 'Dtype', of: (t) => t.dtype },
    { id: 'shape', title: 'Shape', of: (t) => t.elements, text: (t) => '[' + t.shape.join(', ') + ']' },
    { id: 'bytes', title: 'Size', number: true, of: (t) => t.bytes, text: (t) => t.owner === undefined ? size(t.bytes) : 'tied' },
    { id: 'role', title: 'Role', of: (t) => t.role },
    { id: 'parts', title: 'Parts', number: true, of: (t) => t.parts, text: (t) => count(t.parts) },
  ];
  const statsColumn = (id, title, k) => columns.push({
    id, title, number: true, of: (t) => t.stats && t.stats[k] !== null ? t.stats[k] : -Infinity,
    text: (t) => t.stats ? real(t.stats[k]) : '',
  });
  if (data.stats) {
    statsColumn('min', 'Min', 4); statsColumn('max', 'Max', 5); statsColumn('mean', 'Mean', 6); statsColumn('std', 'Std', 7);
    statsColumn('norm', 'Norm', 8); statsColumn('nan', 'NaN', 0);
    columns.push({ id: 'inf', title: 'Inf', number: true, of: (t) => t.stats ? t.stats[1] + t.stats[2] : -1,
      text: (t) => t.stats ? count(t.stats[1] + t.stats[2]) : '' });
    statsColumn('zero', 'Zeros', 3);
  }
  const differs = (x) => !x ? 'equal' : x[0] + (x[2] === null ? '' : ' by ' + real(x[2]));
  if (data.other) {
    columns.push({ id: 'other', title: 'Differs', of: (t) => !t.other ? -1 : t.other[2] === null ? Infinity : t.other[2],
      text: (t) => differs(t.other) });
  }

  let sorted = null, down = false, shown = FIRST_ROWS, found = tensors.slice(), wanted = '', chosen = null;

  function matcher(text) {
    const low = text.trim().toLowerCase();
    if (!low.includes('*')) return (t) => t.low.includes(low);
    const pattern = new RegExp('^' + low.split('*').map((s) => s.replace(/[.+^${}()|[\]\\?]/g, '\\$&')).join('.*') + '$');
    return (t) => pattern.test(t.low);
  }

  function search() {
    wanted = $('search').value;
    const fits = matcher(wanted), dtype = $('dtype').value;
    found = tensors.filter((t) => fits(t) && (dtype === '' || t.dtype === dtype));
    if (sorted) {
      const sign = down ? -1 : 1;
      found.sort((a, b) => {
        const x = sorted.of(a), y = sorted.of(b);
        return (x < y ? -sign : x > y ? sign : a.i - b.i);
      });
    }
    shown = FIRST_ROWS;
    rows();
    map.matches = wanted.trim() === '' && dtype === '' ? null : new Set(found.map((t) => t.i));
    map.later();
  }

  function rows() {
    const body = $('rows'), n = Math.min(shown, found.length);
    const list = document.createDocumentFragment();
    for (let k = 0; k < n; k++) {
      const t = found[k], row = make('tr');
      for (const c of columns) {
        const text = c.text ? c.text(t) : c.of(t);
        if (c.id === 'name') {
          row.append(make('th', { scope: 'row' }, make('button', { class: 'link', type: 'button', 'data-tensor': t.i,
            onclick: () => choose(t, true) }, text)));
        } else {
          row.append(make('td', c.number ? { class: 'n' } : {}, text));
        }
      }
      list.append(row);
    }
    body.replaceChildren(list);
    let bytes = 0;
    for (const t of found) bytes += t.bytes;
    $('found').textContent = count(found.length) + ' of ' + count(tensors.length) + ' tensors, ' + size(bytes) +
      (n < found.length ? '; the first ' + count(n) + ' are shown' : '');
    $('more').hidden = n >= found.length;
  }

  function head() {
    const row = make('tr');
    for (const c of columns) {
      const cell = make('th', { scope: 'col', class: c.number ? 'n' : '', 'aria-sort': 'none' });
      cell.append(make('button', { type: 'button', onclick: () => {
        down = sorted === c ? !down : Boolean(c.number);
        sorted = c;
        for (const other of row.children) other.setAttribute('aria-sort', 'none');
        cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        search();
      } }, c.title));
      row.append(cell);
    }
    $('head').replaceChildren(row);
  }

  // ---- one tensor ----

  // Numbers of elements by power of two of their magnitude: negative ones to the left, zeros in the middle.
  function histogram(t) {
    const s = t.stats, first = s[9], bins = s[10], wide = 640, high = 140, zero = s[3];
    const all = bins.slice();
    let most = zero;
    for (const n of all) most = Math.max(most, n);
    const half = data.bins, used = all.map((n, k) => ({ n, k: k + first })), lows = used.filter((u) => u.k < half && u.n);
    const highs = used.filter((u) => u.k >= half && u.n);
    // the exponents that both sides need
    const power = (k) => k < half ? half - 1 - k : k - half;
    let least = half - 1, top = 0;
    for (const u of lows.concat(highs)) { least = Math.min(least, power(u.k)); top = Math.max(top, power(u.k)); }
    const n = lows.length + highs.length ? top - least + 1 : 1, bar = wide / (2 * n + 1);
    const svg = picture('svg', { viewBox: '0 0 ' + wide + ' ' + (high + 34), class: 'picture', role: 'img',
      'aria-label': 'Histogram of ' + t.name + ' by power of two' });
    const add = (x, k, label) => {
      const h = k ? Math.max(1, high * k / (most || 1)) : 0;
      svg.append(picture('rect', { class: 'bar', x: x + 0.5, y: high - h + 4, width: Math.max(bar - 1, 0.5), height: h },
        picture('title', {}, label + ': ' + count(k))));
    };
    const exponent = (p) => p + data.exponent;
    for (const u of lows) add((top - power(u.k)) * bar, u.n, power(u.k) ? 'at most \u22122^' + exponent(power(u.k)) : 'negative, nearer to zero than 2^' + exponent(1));
    add(n * bar, zero, 'zero');
    for (const u of highs) add((n + 1 + power(u.k) - least) * bar, u.n, power(u.k) ? 'from 2^' + exponent(power(u.k)) : 'positive, below 2^' + exponent(1));
    const label = (x, text, where) => svg.append(picture('text', { class: 'small ' + where, x, y: high + 20 }, text));
    if (lows.length) label(0, '\u22122^' + exponent(top), '');
    label(n * bar + bar / 2, '0', 'middle');
    if (highs.length) label(wide, '2^' + exponent(top), 'end');
    label(wide / 4, lows.length ? 'negative' : '', 'middle');
    label(3 * wide / 4, highs.length ? 'positive' : '', 'middle');
    svg.append(picture('line', { class: 'axis', x1: 0, x2: wide, y1: high + 4, y2: high + 4 }));
    return svg;
  }

  function choose(t, focus) {
    const box = $('one'), facts = make('dl', { class: 'facts' });
    const fact = (name, text) => facts.append(make('dt', {}, name), make('dd', {}, text));
    chosen = t;
    fact('dtype, shape', t.dtype + ' [' + t.shape.join(', ') + '], ' + count(t.elements) + ' elements');
    fact('role', t.role);
    if (t.owner !== undefined) fact('tied to', t.owner);
    else fact('size', size(t.bytes));
    if (t.stats) {
      fact('values', 'min ' + real(t.stats[4]) + ', max ' + real(t.stats[5]) + ', mean ' + real(t.stats[6]) + ', std ' +
        real(t.stats[7]) + ', norm ' + real(t.stats[8]));
      fact('counts', count(t.stats[0]) + ' NaN, ' + count(t.stats[1]) + ' +Inf, ' + count(t.stats[2]) + ' \u2212Inf, ' +
        count(t.stats[3]) + ' zeros');
    }
    if (t.other) {
      fact('differs', t.other[0] + (t.other[1] ? ': ' + count(t.other[1]) + ' elements' : '') +
        (t.other[2] === null ? '' : ', by at most ' + real(t.other[2])));
    }
    const list = make('ul');
    let n = 0;
    eachPart(t, (f, first, k, b) => {
      if (n++ < 64) {
        list.append(make('li', {}, make('span', { class: 'name' }, fileName(f)), ': ' + (b ? boxText(b)
          : k === t.elements ? 'all' : 'elements ' + count(first) + ' to ' + count(first + k - 1))));
      }
      return n <= 64;
    });
    if (t.parts > 64) list.append(make('li', {}, 'and ' + count(t.parts - 64) + ' parts more'));
    const title = make('h3', { tabindex: '-1' }, make('span', { class: 'name' }, t.name));
    box.replaceChildren(title, facts);
    if (t.stats && t.stats[10]) box.append(histogram(t));
    box.append(make('p', { class: 'bar-row' },
      make('button', { type: 'button', onclick: () => { map.show(t); $('canvas').focus(); } }, 'Show on the map'),
      make('button', { type: 'button', onclick: () => { box.hidden = true; chosen = null; map.later(); $('search').focus(); } }, 'Close')));
    if (t.parts) box.append(make('details', t.parts <= 8 ? { open: '' } : {}, make('summary', {}, count(t.parts) + (t.parts === 1 ? ' part' : ' parts')), list));
    box.hidden = false;
    map.later();
    if (focus) { title.focus(); box.scrollIntoView({ block: 'nearest' }); }
  }

  // ---- the map: elements of all tensors to the right, files downwards ----

  const map = {
    canvas: $('canvas'), start: new Float64Array(tensors.length + 1), rows: data.used, matches: null, due: false, equal: false,
    x0: 0, x1: 1, y0: 0, y1: 1,

    measure() {
      let at = 0;
      tensors.forEach((t, i) => {
        this.start[i] = at;
        at += t.owner !== undefined || !t.parts ? 0 : this.equal ? 1 : t.elements;
      });
      this.start[tensors.length] = at;
      this.fit();
    },
    fit() {
      this.x0 = 0; this.x1 = this.start[tensors.length] || 1; this.y0 = 0; this.y1 = this.rows || 1;
      this.later();
    },
    later() {
      if (this.due || !this.canvas) return;
      this.due = true;
      requestAnimationFrame(() => { this.due = false; this.draw(); });
    },
    // The last tensor that begins at x or before it, and is not empty.
    at(x) {
      let low = 0, high = tensors.length - 1;
      while (low < high) {
        const mid = (low + high + 1) >> 1;
        if (this.start[mid] <= x) low = mid; else high = mid - 1;
      }
      while (low > 0 && this.start[low + 1] <= this.start[low]) low--;
      return low;
    },
    // Zoom by a factor about a point of the view, given as parts of its width and height.
    zoom(factor, px, py) {
      const total = this.start[tensors.length] || 1, wide = this.x1 - this.x0, high = this.y1 - this.y0;
      const w = Math.min(total, Math.max(wide * factor, total / 1e9, this.equal ? 0.01 : 8)), h = Math.min(this.rows || 1, Math.max(high * factor, 1));
      this.place(this.x0 + (wide - w) * px, this.y0 + (high - h) * py, w, h);
    },
    place(x, y, w, h) {
      const total = this.start[tensors.length] || 1, rows = this.rows || 1;
      this.x0 = Math.max(0, Math.min(x, total - w)); this.x1 = this.x0 + w;
      this.y0 = Math.max(0, Math.min(y, rows - h)); this.y1 = this.y0 + h;
      this.later();
      this.tell();
    },
    pan(dx, dy) {
      const w = this.x1 - this.x0, h = this.y1 - this.y0;
      this.place(this.x0 + dx * w, this.y0 + dy * h, w, h);
    },
    show(t) {
      const i = t.owner === undefined ? t.i : tensors.findIndex((o) => o.name === t.owner);
      if (i < 0) return;
      const w = this.start[i + 1] - this.start[i] || 1;
      this.place(this.start[i] - w * 0.1, 0, Math.min(w * 1.2, this.start[tensors.length] || 1), this.rows || 1);
      this.canvas.scrollIntoView({ block: 'nearest' });
    },
    tell() {
      if (!tensors.length) return;
      const a = tensors[this.at(this.x0)], b = tensors[this.at(Math.max(this.x0, this.x1 - 1e-9 * (this.x1 - this.x0)))];
      const f = Math.floor(this.y0), g = Math.min(this.rows, Math.ceil(this.y1)) - 1;
      $('where').textContent = 'View: ' + (a === b ? a.name : a.name + ' to ' + b.name) +
        (this.rows ? '; ' + (f === g ? 'file ' + fileName(f) : 'files ' + (f + 1) + ' to ' + (g + 1) + ' of ' + this.rows) : '');
    },
    // What lies under a point of the canvas (CSS pixels).
    under(px, py) {
      const box = this.canvas.getBoundingClientRect();
      const x = this.x0 + px / box.width * (this.x1 - this.x0), f = Math.floor(this.y0 + py / box.height * (this.y1 - this.y0));
      const t = tensors[this.at(x)];
      if (!t || f >= this.rows) return null;
      let hit = null;
      const wide = this.start[t.i + 1] - this.start[t.i], element = Math.floor((x - this.start[t.i]) / (wide || 1) * t.elements);
      eachPart(t, (file, first, k, b) => {
        if (file !== f) return true;
        hit = b ? boxText(b) : 'elements ' + count(first) + ' to ' + count(first + k - 1);
        return b || element >= first + k;
      });
      return { t, file: f, hit };
    },

    draw() {
      const c = this.canvas, box = c.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
      const W = Math.max(1, Math.round(box.width * ratio)), H = Math.max(1, Math.round(box.height * ratio));
      if (c.width !== W || c.height !== H) { c.width = W; c.height = H; }
      const g = c.getContext('2d'), style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(name).trim();
      const palette = ['--d0', '--d1', '--d2', '--d3', '--d5', '--d4'].map(colour);
      const sx = W / (this.x1 - this.x0), sy = H / (this.y1 - this.y0);
      g.globalAlpha = 1;
      g.fillStyle = colour('--ground');
      g.fillRect(0, 0, W, H);
      const last = this.at(this.x1);
      for (let i = this.at(this.x0); i <= last && i < tensors.length; i++) {
        const t = tensors[i], left = (this.start[i] - this.x0) * sx, wide = (this.start[i + 1] - this.start[i]) * sx;
        if (wide <= 0) continue;
        g.globalAlpha = this.matches && !this.matches.has(i) ? 0.15 : 1;
        g.fillStyle = palette[t.layer % palette.length];
        this.tensor(g, t, left, wide, sy, W, H);
      }
      g.globalAlpha = 1;
      this.labels(g, sx, sy, W, H, colour, ratio);
      if (chosen && chosen.owner === undefined) {
        g.strokeStyle = colour('--accent');
        g.lineWidth = 2 * ratio;
        g.strokeRect((this.start[chosen.i] - this.x0) * sx, ratio, Math.max(2, (this.start[chosen.i + 1] - this.start[chosen.i]) * sx), H - 2 * ratio);
      }
    },
    // One tensor's parts, as many of a run in one rectangle as fall into one pixel.
    tensor(g, t, left, wide, sy, W, H) {
      const p = t.raw.p, b = t.raw.b, per = wide / (t.elements || 1), y0 = this.y0, y1 = this.y1;
      const rect = (from, to, f, n) => {
        const x = Math.max(left + from, -1), r = Math.min(left + to, W + 1);
        if (r < 0 || x > W) return;
        g.fillRect(x, (f - y0) * sy, Math.max(r - x - (r - x > 4 ? 0.5 : 0), 1), Math.max(n * sy - (sy > 6 ? 1 : 0), 1));
      };
      let at = 0;
      for (let k = 0; p && k < p.length; k += 3) {
        const f = p[k], one = p[k + 1] * per, n = p[k + 2], from = at * per;
        at += p[k + 1] * n;
        if (f < 0 || f >= y1 || f + n <= y0) continue;
        if (wide <= 2) { rect(0, wide, f, n); continue; }
        const first = Math.max(0, Math.floor(y0 - f)), end = Math.min(n, Math.ceil(y1 - f)), step = Math.max(1, Math.ceil(0.75 / Math.max(one, sy)));
        for (let j = first; j < end; j += step) {
          const m = Math.min(step, end - j);
          rect(from + j * one, Math.min(from + (j + m) * one, wide), f + j, m);
        }
      }
      for (let k = 0; b && k < b.length; k++) {
        const f = b[k][0], box = b[k].slice(1);
        if (f < 0 || f >= y1 || f + 1 <= y0) continue;
        let from = 0, to = wide;
        if (box.length === 2 && t.shape.length !== 1) {
          from = box[0] * per; to = (box[0] + box[1]) * per;
        } else {
          for (let a = 0; a < t.shape.length; a++) {
            if (box[2 * a + 1] === t.shape[a]) continue;
            from = box[2 * a] / t.shape[a] * wide; to = (box[2 * a] + box[2 * a + 1]) / t.shape[a] * wide;
          }
        }
        rect(from, to, f, 1);
      }
    },
    // Names of tensors and files, where there is room.
    labels(g, sx, sy, W, H, colour, ratio) {
      const size = 11 * ratio;
      g.font = size + 'px system-ui, sans-serif';
      g.textBaseline = 'top';
      const write = (text, x, y, most) => {
        const wide = Math.min(most, g.measureText(text).width);
        g.globalAlpha = 0.8; g.fillStyle = colour('--ground'); g.fillRect(x - 2, y - 1, wide + 4, size + 3);
        g.globalAlpha = 1; g.fillStyle = colour('--ink'); g.fillText(text, x, y, most);
      };
      let layer = -1, free = 0;
      for (let i = this.at(this.x0); i < tensors.length && this.start[i] < this.x1; i++) {
        const t = tensors[i], x = Math.max((this.start[i] - this.x0) * sx, 0), end = (this.start[i + 1] - this.x0) * sx;
        const whole = end - x > 90 * ratio;
        if (x < free || (!whole && t.layer === layer)) continue;
        const text = whole ? t.name : data.layers[t.layer];
        layer = t.layer;
        if (whole || x + 40 * ratio < W) { write(text, x + 3, 3, whole ? end - x - 6 : 150 * ratio); free = x + Math.min(g.measureText(text).width, 150 * ratio) + 12 * ratio; }
      }
      if (sy < 14 * ratio) return;
      for (let f = Math.floor(this.y0); f < this.y1 && f < this.rows; f++) {
        const y = Math.max((f - this.y0) * sy + 2 * ratio, 18 * ratio);
        if (y + size < (f + 1 - this.y0) * sy) write(base(fileName(f)), 3, y, W / 2);
      }
    },
  };

  function mapControls() {
    const c = map.canvas;
    let drag = null;
    const point = (e) => { const box = c.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top, box.width, box.height]; };
    $('in').addEventListener('click', () => map.zoom(0.5, 0.5, 0.5));
    $('out').addEventListener('click', () => map.zoom(2, 0.5, 0.5));
    $('fit').addEventListener('click', () => { map.fit(); map.tell(); });
    $('equal').addEventListener('change', () => { map.equal = $('equal').checked; map.measure(); map.tell(); });
    c.addEventListener('wheel', (e) => {
      if (document.activeElement !== c && !e.ctrlKey) return;
      const [x, y, w, h] = point(e);
      e.preventDefault();
      map.zoom(e.deltaY > 0 ? 1.25 : 0.8, x / w, y / h);
    }, { passive: false });
    c.addEventListener('pointerdown', (e) => { drag = point(e).concat(0); c.setPointerCapture(e.pointerId); });
    c.addEventListener('pointermove', (e) => {
      const [x, y, w, h] = point(e);
      if (drag) {
        drag[4] += Math.abs(drag[0] - x) + Math.abs(drag[1] - y);
        map.pan((drag[0] - x) / w, (drag[1] - y) / h);
        drag[0] = x; drag[1] = y;
      } else {
        const u = map.under(x, y);
        if (u) $('where').textContent = u.t.name + ': ' + (u.hit ? u.hit + ' in ' : 'nothing of it in ') + fileName(u.file);
      }
    });
    c.addEventListener('pointerup', (e) => {
      const [x, y] = point(e), moved = drag ? drag[4] : 9;
      drag = null;
      const u = moved < 4 ? map.under(x, y) : null;
      if (u) choose(u.t, false);
    });
    c.addEventListener('keydown', (e) => {
      const step = e.shiftKey ? 0.5 : 0.1, keys = {
        ArrowLeft: () => map.pan(-step, 0), ArrowRight: () => map.pan(step, 0), ArrowUp: () => map.pan(0, -step), ArrowDown: () => map.pan(0, step),
        '+': () => map.zoom(0.5, 0.5, 0.5), '=': () => map.zoom(0.5, 0.5, 0.5), '-': () => map.zoom(2, 0.5, 0.5),
        Home: () => { map.fit(); map.tell(); }, '0': () => { map.fit(); map.tell(); },
        n: () => next(1), p: () => next(-1), Enter: () => { const u = map.under(c.clientWidth / 2, c.clientHeight / 2); if (u) choose(u.t, true); },
      };
      if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      keys[e.key]();
    });
    const next = (by) => {
      for (let i = (chosen ? chosen.i : by > 0 ? -1 : tensors.length) + by; i >= 0 && i < tensors.length; i += by) {
        if (map.start[i + 1] <= map.start[i]) continue;
        choose(tensors[i], false);
        map.show(tensors[i]);
        return;
      }
    };
    new ResizeObserver(() => map.later()).observe(c);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => map.later());
  }

  if ($('tensors')) {
    for (const d of new Set(tensors.map((t) => t.dtype))) $('dtype').append(make('option', { value: d }, d));
    head();
    if (map.canvas) { mapControls(); map.measure(); map.tell(); }
    $('search').addEventListener('input', search);
    $('dtype').addEventListener('change', search);
    $('more').addEventListener('click', () => { shown += MORE_ROWS; rows(); });
    search();
  }
  document.documentElement.setAttribute('data-ready', 'yes');
})();
