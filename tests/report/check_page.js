// What is wrong with the page as it is shown now: a list of sentences. Evaluated by check_report.py.
() => {
    const found = [];
    const say = text => { if (found.length < 40) found.push(text); };
    const near = 1; // pixels that rounding may cost

    // ---- text -----------------------------------------------------------------------------------

    const isShown = element => {
        const style = getComputedStyle(element);
        return style.visibility !== 'hidden' && style.display !== 'none';
    };

    // Every piece of text with the boxes of its lines.
    const pieces = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, parent = node.parentElement;
        if (!node.textContent.trim() || parent.closest('script, style, noscript')) continue;
        if (!isShown(parent)) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        const boxes = [...range.getClientRects()].filter(box => box.width > 0 && box.height > 0);
        if (boxes.length) pieces.push({ text: node.textContent.trim().slice(0, 40), parent, boxes });
    }
    if (pieces.length < 10) say(`only ${pieces.length} pieces of text`);

    if (document.documentElement.scrollWidth > innerWidth)
        say(`the page is ${document.documentElement.scrollWidth} px wide in ${innerWidth} px`);
    for (const piece of pieces) {
        if (piece.parent.closest('.scroll')) continue;
        for (const box of piece.boxes)
            if (box.left < -near || box.right > innerWidth + near)
                say(`"${piece.text}" sticks out: ${box.left.toFixed(1)} to ${box.right.toFixed(1)}`);
    }

    // Lines of one text may touch; those of different texts may not lie on each other.
    const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > near &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3; // line boxes are taller than letters
    for (let i = 0; i < pieces.length; i++)
        for (let k = i + 1; k < pieces.length; k++)
            if (pieces[i].boxes.some(a => pieces[k].boxes.some(b => overlap(a, b))))
                say(`"${pieces[i].text}" and "${pieces[k].text}" overlap`);

    // ---- colours --------------------------------------------------------------------------------

    const channels = colour => colour.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const contrast = (a, b) => {
        const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05);
    };
    const ground = element => {
        for (; element; element = element.parentElement) {
            const colour = channels(getComputedStyle(element).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    // Labels on bars lie on the shape before them.
    const below = element => element.classList.contains('on')
        ? channels(getComputedStyle(element.previousElementSibling).fill) : ground(element);
    for (const piece of pieces) {
        const style = getComputedStyle(piece.parent);
        const colour = channels(piece.parent.namespaceURI.endsWith('svg') ? style.fill : style.color);
        const ratio = contrast(colour, below(piece.parent));
        if (ratio < (piece.parent.classList.contains('on') ? 3 : 4.5))
            say(`"${piece.text}" has a contrast of ${ratio.toFixed(2)}`);
    }
    for (const path of document.querySelectorAll('.plot path.line')) {
        const ratio = contrast(channels(getComputedStyle(path).stroke), ground(path));
        if (ratio < 3) say(`a line has a contrast of ${ratio.toFixed(2)}`);
    }

    // ---- pictures -------------------------------------------------------------------------------

    for (const svg of document.querySelectorAll('.plot > svg')) {
        const box = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label') || '';
        if (name.trim().length < 5) say('a picture has no name');
        if (box.width < 150 || box.height < 20) say(`${name}: ${box.width} x ${box.height} px`);
        if (!svg.querySelector('path, rect')) say(`${name}: nothing is drawn`);
        for (const path of svg.querySelectorAll('path[data-points]')) {
            const points = path.getAttribute('d').match(/[ML]/g) || [];
            if (points.length !== Number(path.dataset.points))
                say(`${name}: a line has ${points.length} points, not ${path.dataset.points}`);
            if (/[^MLh\d. -]/.test(path.getAttribute('d'))) say(`${name}: a path is not numbers`);
        }
        for (const shape of svg.querySelectorAll('rect, circle, path, line')) {
            const at = shape.getBoundingClientRect(), slack = 4;
            if (at.left < box.left - slack || at.right > box.right + slack ||
                at.top < box.top - slack || at.bottom > box.bottom + slack)
                say(`${name}: a ${shape.tagName} leaves the picture`);
        }
    }

    // ---- numbers --------------------------------------------------------------------------------

    // What is shown of a number of the data is that number, to half of its last digit.
    const data = JSON.parse(document.getElementById('data').textContent);
    const scales = { '': [1], s: [1], ms: [1e-3], 'µs': [1e-6], ns: [1e-9], min: [60], h: [3600], '%': [0.01], '×': [1],
        B: [1, 1e9], kB: [1e3], MB: [1e6], GB: [1e9], TB: [1e12], PB: [1e15], EB: [1e18], K: [1e3], M: [1e6], T: [1e12] };
    ['', 'k', 'M', 'G', 'T', 'P', 'E'].forEach((letter, i) => { scales[`${letter}flop`] = [1000 ** i]; });
    const agrees = (text, value) => {
        if (value === null || value === undefined) return text === 'no number';
        const parts = [...text.matchAll(/(-?[\d,]+)(\.\d+)?(e[+-]?\d+)?(?: ?([a-zA-Zµ%×]+))?/g)];
        if (!parts.length || parts.some(part => !scales[part[4] || ''])) return false;
        return scales[parts[0][4] || ''].some(first => {
            let sum = 0, last = 0;
            parts.forEach((part, i) => {
                const scale = i ? scales[part[4] || ''][0] : first;
                sum += Number((part[1] + (part[2] || '') + (part[3] || '')).replace(/,/g, '')) * scale;
                last = scale * 10 ** (Number((part[3] || 'e0').slice(1)) - Math.max(0, (part[2] || '.').length - 1));
            });
            return Math.abs(sum - value) <= (parts.length > 1 ? 1 : 0.501) * last;
        });
    };
    const shown = [...document.querySelectorAll('[data-key]')];
    if (shown.length < 10) say(`only ${shown.length} numbers of the data are shown`);
    for (const element of shown) {
        const value = element.dataset.key.split('.').reduce((at, key) => at?.[key], data);
        if (!agrees(element.textContent, value)) say(`${element.dataset.key} is ${value}, shown as "${element.textContent}"`);
    }
    if (/NaN(?! or infinity)|undefined|Infinity|\[object/.test(document.body.innerText)) say('a text has NaN or undefined in it');
    return found;
}
