'use strict';
// The pictures of all pages, the numbers in them, and the elements around them. A page says what is to be
// drawn; here it becomes SVG as wide as its place, again whenever that changes, with values under the
// pointer. Text only ever becomes text: nothing here reads HTML.

// ---- numbers as people write them ---------------------------------------------------------------

const units = (() => {
    const digits = value => value.toFixed(Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0);
    const guard = format => value => Number.isFinite(value) ? format(value) : 'no number';
    const grouped = value => value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ',');
    // In the largest unit of which there is one at least; below the smallest, whole ones.
    const scaled = (names, one, whole) => guard(value => {
        let i = 0;
        while (i + 1 < names.length && Math.abs(value) >= 999.5 * one * 1000 ** i) i++;
        const shown = value / (one * 1000 ** i);
        const text = Math.abs(shown) >= 999.5 ? shown.toPrecision(3) :
            (whole && i === 0) || shown === 0 ? shown.toFixed(0) : digits(shown);
        return names[i] ? `${text} ${names[i]}` : text;
    });
    const short = scaled(['ns', 'µs', 'ms', 's'], 1e-9, false);
    const count = guard(value => Math.abs(value) < 1e15 ? grouped(value) : value.toPrecision(4));
    return {
        count,
        bytes: scaled(['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'], 1, true),
        flops: scaled(['flop', 'kflop', 'Mflop', 'Gflop', 'Tflop', 'Pflop', 'Eflop'], 1, true),
        elements: scaled(['', 'K', 'M', 'B', 'T'], 1, true),
        seconds: guard(value => {
            if (value === 0) return '0 s';
            if (value < 99.95) return short(value);
            const whole = Math.round(value);
            if (whole >= 360000) return `${grouped(value / 3600)} h`;
            return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s`
                : `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
        }),
        // How far above 1 is what a reader wants to know.
        ratio: guard(value => `${value > 1 && value < 1.1 ? value.toFixed(3) : digits(value)} ×`),
        percent: guard(value => `${(100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0)} %`),
        loss: guard(value => Math.abs(value) < 1000 ? value.toFixed(4) : value.toPrecision(4)),
        number: guard(value => value === 0 ? '0'
            : Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7 ? value.toExponential(2) : value.toPrecision(3)),
        plain: guard(value => String(Number(value.toPrecision(6)))),
    };
})();

// ---- elements -----------------------------------------------------------------------------------

// Control characters, and those that would change how the text around them is shown.
const clean = text => String(text)
    .replace(/[\0-\x08\x0b-\x1f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\x7f/g, '\u2421').replace(/[\x80-\x9f\u202a-\u202e\u2066-\u2069\ufeff]/g, '\ufffd');

const make = (space, tag, attributes, children) => {
    const element = document.createElementNS(space, tag);
    for (const [key, value] of Object.entries(attributes || {}))
        if (value !== undefined && value !== null) element.setAttribute(key, value);
    for (const child of children.flat(9))
        if (child !== null && child !== undefined && child !== false)
            element.append(child instanceof Node ? child : clean(child));
    return element;
};
const h = (tag, attributes, ...children) => make('http://www.w3.org/1999/xhtml', tag, attributes, children);
const s = (tag, attributes, ...children) => make('http://www.w3.org/2000/svg', tag, attributes, children);

const data = JSON.parse(document.getElementById('data').textContent);
const lookUp = key => key.split('.').reduce((at, name) => at?.[name], data);
// A number of the data by its key, which stays with what is shown of it.
const num = (key, format) => h('span', { 'data-key': key }, format(lookUp(key) ?? NaN));

const page = document.getElementById('page');
const section = (title, text, ...children) =>
    page.append(h('section', {}, h('h2', {}, title), text && h('p', { class: 'muted' }, text), children));
const table = (head, rows, note) => h('div', { class: 'scroll' }, h('table', {},
    head && h('thead', {}, h('tr', {}, head.map(cell => h('th', { scope: 'col' }, cell)))),
    h('tbody', {}, rows.map(row => h('tr', { class: row.class }, h('th', { scope: 'row' }, row.name),
        row.cells.map(cell => h('td', { class: row.text && 'text' }, cell))))), note));
const tile = (title, value, text) =>
    h('div', { class: 'tile' }, h('h3', {}, title), h('div', { class: 'big' }, value), text && h('p', {}, text));
const plural = (n, one, many) => `${units.count(n)} ${n === 1 ? one : many || one + 's'}`;

// ---- charts -------------------------------------------------------------------------------------

const chart = (() => {
    const drawn = [];
    const pen = document.createElement('canvas').getContext('2d');
    const widthOf = text => {
        pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
        return pen.measureText(clean(text)).width;
    };
    const cut = (text, room) => {
        text = clean(text);
        if (widthOf(text) <= room) return text;
        while (text && widthOf(text + '…') > room) text = text.slice(0, -1);
        return text + '…';
    };
    const at = value => value.toFixed(2);
    const line = (name, x1, y1, x2, y2, more) =>
        s('line', { class: name, x1: at(x1), y1: at(y1), x2: at(x2), y2: at(y2), ...more });
    const rect = (name, x, y, width, height, more) =>
        s('rect', { class: name, x: at(x), y: at(y), width: at(width), height: at(height), ...more });
    const label = (x, y, anchor, text, name) => s('text', { class: name, x: at(x), y: at(y), 'text-anchor': anchor }, text);
    const most = list => list.reduce((a, b) => b > a ? b : a, -Infinity);
    const least = list => list.reduce((a, b) => b < a ? b : a, Infinity);
    const finite = list => list.filter(Number.isFinite);

    // ---- axes: a place for each value, and ticks ------------------------------------------------

    const linear = (low, high, count, wide) => {
        if (!(low <= high)) [low, high] = [0, 1];
        if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high), 1e-290)) {
            const half = Math.max(Math.abs(high) * 0.05, high ? 1e-290 : 0.5);
            low = low >= 0 && low < half ? 0 : low - half;
            high += half;
        }
        const rough = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
        const step = power * [1, 2, 5, 10].find(f => f >= rough / power * (1 - 1e-9));
        if (wide) {
            low = Math.floor(low / step + 1e-9) * step;
            high = Math.ceil(high / step - 1e-9) * step;
        }
        const ticks = [];
        for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-6 * step; i++) ticks.push(i * step);
        return { low, high, ticks, place: v => Math.min(1, Math.max(0, (v - low) / (high - low))) };
    };
    const logarithmic = (low, high, count) => {
        const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high * 1.0001));
        const every = Math.max(1, Math.ceil((last - first) / count)), ticks = [];
        for (let i = first; i <= last; i += every)
            for (const k of last - first < 3 ? [1, 2, 5] : [1])
                if (k * 10 ** i <= high * 1.0001) ticks.push(k * 10 ** i);
        const from = Math.log10(Math.max(10 ** first, low / 1.3)), to = Math.log10(high * 1.1);
        return { low, high, ticks: ticks.filter(t => Math.log10(t) >= from - 1e-9),
            place: v => Math.min(1, Math.max(0, (Math.log10(v) - from) / (to - from))) };
    };
    const axisOf = (values, how, count) => {
        const list = finite(values), low = least(list), high = most(list);
        if (how.log && low > 0 && high > 20 * low) return logarithmic(Math.max(low, how.floor || 0), high, count);
        return linear(how.zero ? Math.min(low, 0) : low, high, count, true);
    };

    // The box for data between its margins, and what is around it.
    const box = (width, height, y, format, rightMargin, xName) => {
        const labels = y ? y.ticks.map(format) : [];
        const left = y ? Math.ceil(most(labels.map(widthOf))) + 10 : 2;
        const b = { left, top: 10, right: width - rightMargin, bottom: height - (xName ? 40 : 24), parts: [] };
        b.x = place => b.left + (b.right - b.left) * place;
        b.y = place => b.bottom - (b.bottom - b.top) * place;
        if (y) y.ticks.map(tick => b.y(y.place(tick))).forEach((top, i) => b.parts.push(
            line('gridline', b.left, top, b.right, top), label(b.left - 7, top + 4, 'end', labels[i])));
        if (xName) b.parts.push(label((b.left + b.right) / 2, height - 4, 'middle', xName));
        return b;
    };
    // Labels below the box, as many as fit beside each other.
    const putTicks = (b, list, width) => {
        let end = -Infinity;
        for (const [place, text, isLined] of list) {
            const wide = widthOf(text), x = Math.min(Math.max(b.x(place), wide / 2), width - wide / 2);
            if (isLined) b.parts.push(line('gridline', b.x(place), b.top, b.x(place), b.bottom));
            if (x - wide / 2 < end + 8) continue;
            b.parts.push(label(x, b.bottom + 17, 'middle', text));
            end = x + wide / 2;
        }
    };
    // Lines across the box with their names at the right, apart from each other.
    const putRules = (b, rules, y) => {
        const sorted = rules.map(rule => ({ ...rule, at: b.y(y.place(rule.value)) })).sort((p, q) => q.at - p.at);
        let room = b.bottom + 8;
        for (const rule of sorted) {
            room = rule.text = Math.min(rule.at + 4, room - 14);
            b.parts.push(line('halo', b.left, rule.at, b.right, rule.at),
                line(`rule ${rule.class}`, b.left, rule.at, b.right, rule.at, { 'stroke-dasharray': rule.dash || null }),
                label(b.right + 6, rule.text, 'start', rule.name, `ruled ${rule.class}`));
        }
    };

    // ---- the figure around a picture ------------------------------------------------------------

    const key = item => h('li', { class: item.class },
        item.dash !== undefined || item.line
            ? s('svg', { width: 26, height: 12 }, line('rule', 1, 6, 25, 6, { 'stroke-dasharray': item.dash || null }))
            : s('svg', { width: 12, height: 12 }, rect('fill', 0, 0, 12, 12, { rx: 2 })),
        h('span', {}, item.text || item.name));

    // draw(width) returns { height, parts, hover(x, y) }; hover returns { head, rows, parts } or nothing.
    const figure = (how, draw) => {
        const place = h('div', { class: 'plot' }), tip = h('div', { class: 'tip', hidden: '' });
        const element = h('figure', { class: how.wide && 'wide' },
            h('figcaption', {}, h('h3', {}, how.title), how.text && h('p', {}, how.text)),
            how.keys && how.keys.length > 0 && h('ul', { class: 'legend' }, how.keys.map(key)), place);
        let picture, svg, over;
        const redraw = () => {
            const width = Math.max(place.clientWidth, 200);
            picture = draw(width);
            over = s('g', {});
            svg = s('svg', {
                viewBox: `0 0 ${width} ${picture.height}`, height: picture.height, role: 'img',
                'aria-label': clean(`${how.title}. ${how.text || ''}`),
            }, picture.parts, over);
            place.replaceChildren(svg, tip);
            tip.hidden = true;
        };
        const leave = () => { tip.hidden = true; over.replaceChildren(); };
        place.addEventListener('pointermove', event => {
            const from = svg.getBoundingClientRect(), x = event.clientX - from.left, y = event.clientY - from.top;
            const found = picture.hover(x, y);
            if (!found) return leave();
            over.replaceChildren(...(found.parts || []));
            tip.replaceChildren(h('strong', {}, found.head), ...found.rows.map(row => h('div', { class: row.class },
                row.class && h('i', {}), h('span', {}, row.name), h('b', {}, row.text))));
            tip.hidden = false;
            const wide = tip.offsetWidth, high = tip.offsetHeight;
            const beside = x + 16 + wide <= from.width ? x + 16 : x - 16 - wide;
            const left = Math.max(0, Math.min(beside, from.width - wide));
            tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(y - high / 2)}px)`;
        });
        place.addEventListener('pointerleave', leave);
        drawn.push({ place, redraw, width: 0 });
        return element;
    };
    const drawAll = () => drawn.forEach(item => {
        if (item.place.clientWidth === item.width) return;
        item.width = item.place.clientWidth;
        item.redraw();
    });

    // ---- lines: series of { name, class, kind, x, y } over numbers -------------------------------

    const markAt = (shape, x, y) => shape % 2
        ? rect('mark', x - 3.4, y - 3.4, 6.8, 6.8)
        : s('circle', { class: 'mark', cx: at(x), cy: at(y), r: 3.8 });
    // What is no number is a gap; a point between two gaps is a line to itself.
    const pathOf = (series, x, y) => {
        let path = '', down = false;
        series.x.forEach((value, i) => {
            if (!Number.isFinite(series.y[i])) { down = false; return; }
            path += `${down ? 'L' : 'M'}${at(x(value))} ${at(y(series.y[i]))}${down ? '' : 'h0'}`;
            down = true;
        });
        return path;
    };
    const nearest = (list, value) => {
        let low = 0, high = list.length - 1;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (list[middle] < value) low = middle + 1; else high = middle;
        }
        return low > 0 && value - list[low - 1] < list[low] - value ? low - 1 : low;
    };
    const lines = how => figure(how, width => {
        const height = how.height || 240, format = how.y.format, pickFormat = how.y.exact || format;
        const y = axisOf(how.series.flatMap(series => series.y), how.y, height / 48);
        const ends = how.series.flatMap(series => [series.x[0], series.x[series.x.length - 1]]).filter(Number.isFinite);
        const x = linear(how.x.low ?? least(ends), how.x.high ?? most(ends), Math.min(width / 90, 8), false);
        const b = box(width, height, y, format, 8, how.x.name), px = v => b.x(x.place(v)), py = v => b.y(y.place(v));
        putTicks(b, x.ticks.filter(Number.isInteger).map(tick => [x.place(tick), units.count(tick), true]), width);
        how.series.forEach((series, index) => {
            const isFaint = series.kind === 'faint', n = series.x.length, every = n < 80 ? 1 : Math.ceil(n / 60);
            const isMarked = series.kind === 'marks' || (n < 3 && !isFaint);
            const points = { d: pathOf(series, px, py), 'data-points': finite(series.y).length };
            b.parts.push(s('g', { class: series.class, 'data-series': clean(series.name || '') },
                series.kind !== 'marks' && s('path', { class: isFaint ? 'faint' : 'line', ...points }),
                isMarked && series.x.map((value, i) => Number.isFinite(series.y[i]) && i % every === 0 &&
                    markAt(series.shape ?? index, px(value), py(series.y[i])))));
        });
        const named = how.series.filter(series => series.name && series.x.length);
        const row = (series, where) => {
            const i = nearest(series.x, where), there = series.x[i];
            return { class: series.class, text: pickFormat(series.y[i] ?? NaN),
                name: there === where ? series.name : `${series.name}, at ${units.count(there)}` };
        };
        const hover = pointer => {
            const value = x.low + (x.high - x.low) * (pointer - b.left) / (b.right - b.left);
            if (pointer < b.left - 4 || pointer > b.right + 4 || !named.length) return null;
            const main = named.reduce((best, series) => series.x.length > best.x.length ? series : best);
            const where = main.x[nearest(main.x, value)];
            return { head: `${how.x.name} ${units.count(where)}`, rows: named.map(series => row(series, where)),
                parts: [line('cross', px(where), b.top, px(where), b.bottom)] };
        };
        return { height, parts: b.parts, hover };
    });

    // ---- columns: stacks of values, one column for each of many ----------------------------------

    // stacks: [{ name, class, values }], each of n values, which stand for `of` things that are numbered from 0;
    // overlay: each begins at 0, later ones are narrower.
    const columns = how => figure(how, width => {
        const height = how.height || 240, n = how.n, format = how.y.format, rules = how.rules || [], ticks = [];
        const heights = i => how.stacks.map(stack => stack.values[i]);
        const sum = list => list.reduce((p, q) => p + q);
        const sums = how.stacks[0].values.map((_, i) => (how.overlay ? most : sum)(heights(i)));
        const y = axisOf([0, ...sums, ...rules.map(rule => rule.value)], { zero: true }, height / 48);
        const margin = rules.length ? Math.ceil(most(rules.map(rule => widthOf(rule.name)))) + 10 : 4;
        const b = box(width, height, y, format, margin, how.xName);
        const pitch = (b.right - b.left) / n, wide = Math.min(pitch * (n > 60 ? 1 : 0.8), 56);
        for (let i = 0; i < n; i++) {
            let base = 0;
            how.stacks.forEach((stack, k) => {
                const value = stack.values[i], part = how.overlay ? wide * (1 - 0.5 * k) : wide;
                if (!(value > 0)) return;
                const top = b.y(y.place(base + value)), foot = b.y(y.place(base));
                const left = b.left + pitch * (i + 0.5) - part / 2;
                b.parts.push(rect(`fill ${stack.class}`, left, top, Math.max(part, 0.5), Math.max(foot - top, 0.3)));
                if (!how.overlay) base += value;
            });
        }
        putRules(b, rules, y);
        const of = how.of || n, step = linear(0, of, Math.min((b.right - b.left) / 60, 16), false).ticks[1];
        for (let i = 0; i < of; i += Math.max(1, Math.round(step))) ticks.push([(i + 0.5) / of, String(i)]);
        putTicks(b, ticks, width);
        const hover = pointer => {
            const i = Math.floor((pointer - b.left) / pitch);
            if (i < 0 || i >= n) return null;
            return { head: how.head(i), parts: [rect('picked', b.left + pitch * i, b.top, pitch, b.bottom - b.top)],
                rows: how.stacks.map(stack => ({ ...stack, text: format(stack.values[i]) })) };
        };
        return { height, parts: b.parts, hover };
    });

    // ---- strips: rows of spans along one axis ----------------------------------------------------

    // rows: [{ name, note, spans: [{ begin, end, class, label, head, rows }] }]; a row with a note has its
    // name above it, others beside them.
    const strips = how => figure(how, width => {
        const above = how.rows.some(row => row.note !== undefined), pitch = above ? 52 : 24, bar = above ? 24 : 20;
        const height = how.rows.length * pitch + 12 + (how.xName ? 40 : 24), shown = [];
        const end = most(how.rows.flatMap(row => row.spans.map(span => span.end)).concat(1e-30));
        const x = linear(0, end, Math.min(width / 90, 8), false);
        const b = box(width, height, null, null, 6, how.xName);
        if (!above) b.left = Math.ceil(most(how.rows.map(row => widthOf(row.name)))) + 10;
        putTicks(b, x.ticks.map(tick => [x.place(tick), how.format(tick), true]), width);
        how.rows.forEach((row, i) => {
            const top = b.top + i * pitch + (above ? 22 : 2);
            b.parts.push(above
                ? label(b.left, top - 7, 'start', [cut(row.name, width * 0.55), row.note && `, ${row.note}`], 'strong')
                : label(b.left - 7, top + 14, 'end', row.name),
            rect('track', b.left, top, b.right - b.left, bar, { rx: 2 }));
            for (const span of row.spans) {
                const from = b.x(x.place(span.begin)), wide = Math.max(b.x(x.place(span.end)) - from, 0.6);
                if (!(span.end > span.begin)) continue;
                b.parts.push(rect(`fill ${span.class}`, from, top, wide > 5 ? wide - 1 : wide, bar));
                if (span.label && widthOf(span.label) + 6 < wide)
                    b.parts.push(label(from + wide / 2, top + bar / 2 + 4, 'middle', span.label, 'on'));
                shown.push({ from, to: from + wide, top, span });
            }
        });
        const hover = (px, py) => {
            const inRow = shown.filter(item => py >= item.top - 2 && py <= item.top + bar + 2);
            const distance = item => Math.max(item.from - px, px - item.to, 0);
            const best = inRow.reduce((a, c) => !a || distance(c) < distance(a) ? c : a, null);
            if (!best || distance(best) > 6) return null;
            return { head: best.span.head, rows: best.span.rows,
                parts: [rect('picked', best.from - 0.5, best.top - 1, best.to - best.from + 1, bar + 2)] };
        };
        return { height, parts: b.parts, hover };
    });

    // ---- matrix: how much each sends to each -----------------------------------------------------

    // values[from * n + to]; the darker, the more, on a logarithmic scale.
    const matrix = how => figure(how, width => {
        const n = how.n, left = Math.ceil(widthOf(how.short(n - 1))) + 26, top = 24;
        const side = Math.min(width - left - 14, 460), cell = side / n;
        const list = how.values.filter(value => value > 0), high = most(list), low = Math.max(least(list), high / 1e4);
        const strength = value => high > low ? 0.14 + 0.86 * Math.max(0, Math.log(value / low)) / Math.log(high / low) : 1;
        const gap = cell > 8 ? 1 : 0, x = i => left + i * cell, y = i => top + i * cell;
        const parts = [label(x(n / 2), 12, 'middle', 'to rank →'),
            s('text', { transform: `translate(12 ${at(y(n / 2))}) rotate(-90)`, 'text-anchor': 'middle' }, '← from rank'),
            rect('track', left, top, side, side)];
        how.values.forEach((value, i) => {
            const opacity = value > 0 && at(strength(value));
            if (opacity) parts.push(rect('heat', x(i % n), y(Math.floor(i / n)), cell - gap, cell - gap, { opacity }));
        });
        const every = Math.max(1, Math.ceil(n * 34 / side)), fits = widthOf(how.short(n - 1)) < every * cell - 8;
        for (let i = 0; i < n; i += every) {
            parts.push(label(left - 6, y(i + 0.5) + 4, 'end', how.short(i)));
            if (fits || i % (2 * every) === 0) parts.push(label(x(i + 0.5), top + side + 16, 'middle', how.short(i)));
        }
        const hover = (px, py) => {
            const to = Math.floor((px - left) / cell), from = Math.floor((py - top) / cell);
            if (to < 0 || from < 0 || to >= n || from >= n) return null;
            return { head: `${how.long(from)} to ${how.long(to)}`, parts: [rect('picked', x(to), y(from), cell, cell)],
                rows: [{ class: 'c0', name: 'sends', text: how.format(how.values[from * n + to]) }] };
        };
        return { height: top + side + 24, parts, hover };
    });

    return { lines, columns, strips, matrix, drawAll };
})();

// After a page has added everything: draws it, now and whenever the window changes.
const finish = title => {
    document.title = clean(title);
    chart.drawAll();
    new ResizeObserver(() => chart.drawAll()).observe(page);
};
