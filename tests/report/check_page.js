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
        if (!node.textContent.trim() || parent.closest('script, style, title, desc')) continue;
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
    for (const piece of pieces) {
        const style = getComputedStyle(piece.parent);
        const colour = channels(piece.parent.namespaceURI.endsWith('svg') ? style.fill : style.color);
        const ratio = contrast(colour, ground(piece.parent));
        if (ratio < 4.5) say(`"${piece.text}" has a contrast of ${ratio.toFixed(2)}`);
    }
    for (const path of document.querySelectorAll('.plot path.line')) {
        const ratio = contrast(channels(getComputedStyle(path).stroke), ground(path));
        if (ratio < 3) say(`a line has a contrast of ${ratio.toFixed(2)}`);
    }

    // ---- pictures -------------------------------------------------------------------------------

    const plots = [...document.querySelectorAll('.plot')];
    for (const plot of plots) {
        const svg = plot.querySelector('svg'), box = svg.getBoundingClientRect();
        const name = svg.querySelector('title').textContent;
        if (box.width < 150 || box.height < 20) say(`${name}: ${box.width} x ${box.height} px`);
        for (const path of svg.querySelectorAll('path[data-points]')) {
            const points = [...path.getAttribute('d').matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)];
            if (points.length !== Number(path.dataset.points))
                say(`${name}: a line has ${points.length} points, not ${path.dataset.points}`);
            if (points.some(m => !(m[1] >= 0 && m[1] <= 1000 && m[2] >= 0 && m[2] <= 1000)))
                say(`${name}: a line leaves the chart`);
            if (/[^MLh\d. ]/.test(path.getAttribute('d'))) say(`${name}: a path is not numbers`);
        }
        for (const shape of svg.querySelectorAll('use, rect')) {
            const at = shape.getBoundingClientRect();
            const slack = shape.tagName === 'use' ? 8 : 2;
            if (at.left < box.left - slack || at.right > box.right + slack ||
                at.top < box.top - slack || at.bottom > box.bottom + slack)
                say(`${name}: a ${shape.tagName} leaves the chart`);
            if (shape.tagName === 'use' && !(at.width > 3)) say(`${name}: a mark is not drawn`);
        }
    }
    for (const svg of document.querySelectorAll('svg[role=img]'))
        for (const part of ['title', 'desc'])
            if (!svg.querySelector(part)?.textContent.trim()) say(`a picture has no ${part}`);
    const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
    if (new Set(ids).size !== ids.length) say('an id is there twice');
    return found;
}
