// The page of training runs: data.runs, beside each other.

const runs = data.runs;
const each = make => runs.map((run, i) => make(run, i, `runs.${i}.`));
const colour = i => `c${i % 8}`;
const say = (...parts) => parts.flat().filter(Boolean).join(' ');
const last = list => list[list.length - 1];
const finite = value => value !== null && Number.isFinite(value);

// ---- how the runs ended -------------------------------------------------------------------------

// By the validation loss; without one, by the mean of the last twentieth of the batches, which differ.
const outcomeOf = run => {
    const { step, loss } = run.validations;
    for (let i = step.length; i-- > 0;)
        if (finite(loss[i])) return { run, loss: loss[i], step: step[i], kind: 'validation loss' };
    const losses = run.curves.loss.filter(finite).slice(-(Math.floor(run.curves.loss.length / 20) + 1));
    return { run, loss: losses.length ? losses.reduce((a, b) => a + b) / losses.length : NaN,
        step: run.done, kind: 'training loss' };
};
// The step at which a run's validation loss was down to `target`, on a line between two of them.
const reached = (run, target) => {
    let before = null;
    for (let i = 0; i < run.validations.step.length; i++) {
        const at = { step: run.validations.step[i], loss: run.validations.loss[i] };
        if (!finite(at.loss)) continue;
        if (at.loss <= target)
            return before ? Math.ceil(before.step + (before.loss - target) / (before.loss - at.loss) * (at.step - before.step)) : at.step;
        before = at;
    }
    return NaN;
};
// Since the run began, until this step was done; NaN if nobody knows.
const secondsUntil = (run, step) => {
    const i = run.resumed ? -1 : run.curves.step.findIndex(value => value >= step);
    return i < 0 ? NaN : run.curves.end[i] ?? NaN;
};

const tellTimes = (ahead, other, step) => {
    const took = secondsUntil(ahead.run, step), all = secondsUntil(other.run, other.step);
    if (!(took > 0 && all > 0)) return '';
    if (Math.abs(took - all) < 0.1 * Math.max(took, all))
        return `Both took about the same time for it, ${units.seconds(took)} and ${units.seconds(all)}.`;
    return `That took it ${units.seconds(took)}; ${other.run.label} took ${units.seconds(all)}.`;
};
const tellTwo = (ahead, other) => {
    const gap = other.loss - ahead.loss, names = [ahead.run.label, other.run.label];
    if (gap < 1e-4)
        return [`${names[0]} and ${names[1]} end level: a ${ahead.kind} of ${units.loss(ahead.loss)} and ${units.loss(other.loss)}.`];
    const step = reached(ahead.run, other.loss), earlier = other.step - step;
    const apart = ahead.step !== other.step ? ` (after ${units.count(ahead.step)} and ${units.count(other.step)} steps)` : '';
    const sooner = ahead.kind === other.kind && earlier > 0 && say(
        `It reached the loss that ${names[1]} ended with after about ${plural(step, 'step')}, ${plural(earlier, 'step')} (${units.percent(earlier / other.step)}) sooner.`,
        tellTimes(ahead, other, step));
    return [h('strong', {}, `${names[0]} is ahead of ${names[1]} by ${units.loss(gap)}`),
        ` at the end, with a ${ahead.kind} of ${units.loss(ahead.loss)} against ${units.loss(other.loss)} nats per byte${apart}. `, sooner];
};
const tellOne = ({ run, loss, kind }) => Number.isNaN(loss)
    ? [`${run.label} has no loss to show.`]
    : [`${run.label} ended at a ${kind} of ${units.loss(loss)} nats per byte after ${units.count(run.done)} of ${plural(run.planned, 'step')}`,
        run.seconds > 0 && `, in ${units.seconds(run.seconds)}`, '.'];
const notes = () => {
    const stopped = runs.filter(run => run.done < run.planned);
    return say(stopped.length > 2 ? `${stopped.length} runs were stopped before their last step.`
        : stopped.map(run => `${run.label} was stopped after ${units.count(run.done)} of ${plural(run.planned, 'step')}.`),
    runs.map(run => run.resumed > 0 && `${run.label} went on from a checkpoint of step ${units.count(run.resumed)}: curves but for validation, and all times, begin there.`),
    runs.map(run => run.skipped > 0 && `${run.label} skipped ${plural(run.skipped, 'step')} that had a NaN or infinity.`));
};

// ---- the top ------------------------------------------------------------------------------------

const sorted = runs.map(outcomeOf).sort((a, b) => (Number.isNaN(a.loss) - Number.isNaN(b.loss)) || a.loss - b.loss);
const title = runs.length === 1 ? `Training with ${runs[0].label}` : runs.length === 2
    ? `${runs[0].label} against ${runs[1].label}` : `${runs.length} training runs`;
const all = list => [...new Set(list.filter(Boolean))];
const rates = runs.map(run => run.totals.lr_max > 0 && `${runs.length > 1 ? `${run.label} ` : ''}lr ${units.plain(run.totals.lr_max)}`);
const seeds = all(runs.map(run => run.settings.seed));
const differ = (key, i) => all(runs.map(run => run[key])).length > 1 ? `${runs[i].label}: ` : '';
const once = key => runs.map((run, i) => run[key] && differ(key, i) + run[key]).filter((text, i, list) => text && list.indexOf(text) === i);

const values = (key, format) => h('dl', {}, each((run, i, at) => [h('dt', {}, run.label), h('dd', {}, num(at + key, format))]));
const middle = run => {
    const list = run.curves.seconds.filter(finite).sort((a, b) => a - b), n = list.length;
    return n > 3 && `${runs.length > 1 ? `${run.label}: ` : ''}half of the steps took ${units.seconds(list[Math.floor(n / 4)])} to ${units.seconds(list[Math.floor(3 * n / 4)])}`;
};
const runTile = (name, key, format, text) => h('div', { class: 'tile' }, h('h3', {}, name), values(key, format), text);
page.append(
    h('h1', {}, title),
    h('p', { class: 'lead muted' }, [...all(rates), seeds.length && `seed ${seeds.join(', ')}`].filter(Boolean).join(', ')),
    h('p', { class: 'lead', id: 'summary' }, sorted.length > 1 && !Number.isNaN(sorted[1].loss) ? tellTwo(sorted[0], sorted[1]) : tellOne(sorted[0]), ' ', notes()),
    ...once('description').map(text => h('p', { class: 'muted' }, text)),
    ...once('machine').map(text => h('p', { class: 'muted' }, `Machine: ${text}.`)),
    h('div', { class: 'tiles runs' },
        runTile('Loss at the end, nats per byte', 'final_loss', units.loss),
        runTile('Time of a step, mean', 'step_seconds', units.seconds, runs.length < 3 && runs.map(middle).map(text => text && h('p', {}, text))),
        runTile('Tokens per second', 'tokens_per_second', units.count),
        runTile('Optimizer’s share of a step', 'optimizer_share', units.percent)));

// ---- learning -----------------------------------------------------------------------------------

const end = Math.max(1, ...runs.map(run => Math.max(run.planned, run.done)));
// The mean of about a thirtieth of the run around each step; near the ends, of as much on both sides.
const smooth = list => {
    const half = Math.floor(list.length / 60);
    return list.map((value, i) => {
        const wide = Math.min(i, half, list.length - 1 - i), near = list.slice(i - wide, i + wide + 1).filter(finite);
        return finite(value) ? near.reduce((a, b) => a + b, 0) / near.length : NaN;
    });
};
const from = (series, first) => {
    const i = series.x.findIndex(value => value >= first);
    return i < 0 ? { ...series, x: [], y: [] } : { ...series, x: series.x.slice(i), y: series.y.slice(i) };
};
const losses = each((run, i) => [
    runs.length <= 3 && { class: colour(i), kind: 'faint', x: run.curves.step, y: run.curves.loss },
    { class: colour(i), kind: 'line', name: `${run.label}, training`, x: run.curves.step, y: smooth(run.curves.loss) },
    run.validations.step.length > 0 && { class: colour(i), kind: 'marks', shape: i, name: `${run.label}, validation`, x: run.validations.step, y: run.validations.loss },
]).flat().filter(Boolean);
const keys = each((run, i) => ({ name: run.label, class: colour(i), line: true }));
const lossText = say('Nats per byte. Lines: training, the mean of nearby batches', runs.length <= 3 ? ', which are faint;' : ';',
    'marks: validation, on text that is not trained on.').replace(' ,', ',').replace(' ;', ';');
const overSteps = (how, series) => series.some(one => one.y.some(finite)) && chart.lines({ height: 200, keys, ...how, series, x: { name: 'step', low: how.first || 0, high: end } });
const curve = (key, name, text, y) => runs.some(run => run.curves[key].some(value => finite(value) && value !== 0)) &&
    overSteps({ title: name, text, y: { format: units.plain, exact: units.number, ...y } }, each((run, i) => ({ class: colour(i), kind: 'line', name: run.label, x: run.curves.step, y: run.curves[key] })));
const half = Math.floor(end / 2);
const lossAxis = { format: units.plain, exact: units.loss, log: true };
section('Learning', null, h('div', { class: 'grid' },
    overSteps({ title: 'Loss', text: lossText, wide: true, height: 340, y: lossAxis }, losses),
    half >= 10 && overSteps({ title: 'Loss, the second half', text: 'The same, closer.', wide: true, height: 280, first: half, y: lossAxis }, losses.map(series => from(series, half))),
    curve('lr', 'Learning rate', 'Of Muon’s matrices; without Muon, of AdamW’s.', { zero: true }),
    curve('grad_norm', 'Gradient norm', 'Of all parameters together, before clipping.', { zero: true, log: true }),
    curve('max_logit', 'Largest attention logit', 'Before the softmax, of all heads.', { zero: true, log: true }),
    curve('clipped_heads', 'Heads above the QK-clip threshold', 'In each step.', { zero: true, format: units.elements }),
    curve('balance', 'Load-balancing loss', 'How unevenly experts are used.', {})));

// ---- time ---------------------------------------------------------------------------------------

const partNames = {
    model: 'model, forward and backward', exchange: 'exchange between ranks', optimizer: 'optimizer',
    check: 'check and norm of gradients', momentum: 'momentum', gather: 'gather, waiting for parts', ortho: 'orthogonalization',
    scatter: 'scatter, waiting for results', update: 'update of Muon’s weights', adamw: 'AdamW', qk_clip: 'QK-clip',
    offload: 'offload, waiting for state', rest: 'all else',
};
const outer = ['model', 'exchange', 'optimizer'], inner = Object.keys(partNames).filter(name => !outer.includes(name));
const secondsOf = (run, name) => run.time[name]?.seconds || 0;
const stepOf = run => outer.reduce((sum, name) => sum + secondsOf(run, name), 0);
const bars = (name, text, parts) => {
    const shown = parts.filter(part => runs.some(run => secondsOf(run, part) > 5e-4 * stepOf(run)));
    return chart.strips({
        title: name, text, format: units.seconds, keys: shown.map(part => ({ name: partNames[part], class: part })),
        rows: runs.map(run => {
            let at = 0;
            const whole = parts.reduce((sum, part) => sum + secondsOf(run, part), 0);
            return { name: run.label, note: units.seconds(whole), spans: shown.map(part => {
                const begin = at, seconds = secondsOf(run, part);
                at += seconds;
                return { begin, end: at, class: part, head: run.label, rows: [{ class: part, name: partNames[part], text: units.seconds(seconds) }, { name: 'of this bar', text: units.percent(seconds / whole) }] };
            }) };
        }),
    });
};
const cell = (run, i, name) => {
    const part = run.time[name];
    if (!(part?.seconds > 0)) return '–';
    return [num(`runs.${i}.time.${name}.seconds`, units.seconds), h('small', {}, units.percent(part.seconds / stepOf(run))),
        part.flops_rate > 0 ? h('small', {}, num(`runs.${i}.time.${name}.flops_rate`, units.flops), '/s')
            : part.bytes_rate > 0 && h('small', {}, num(`runs.${i}.time.${name}.bytes_rate`, units.bytes), '/s'),
        run.ranks > 1 && part.spread > 0 && h('small', {}, 'slowest rank ', num(`runs.${i}.time.${name}.spread`, units.ratio), ' fastest')];
};
if (runs.some(run => stepOf(run) > 0))
    section('Time', say('The mean of all steps', runs.some(run => run.ranks > 1) && 'and ranks. Where ranks wait for each other, that is part of the exchange',
    ).concat('.'), h('div', { class: 'grid' },
        bars('A step', 'The model, what ranks send each other, and the optimizer.', outer),
        bars('Inside the optimizer', 'Its phases in their order, on a scale of their own.', inner)),
    table(['of a step', ...runs.map(run => run.label)], [...outer, ...inner].filter(name => runs.some(run => secondsOf(run, name) > 0))
        .map(name => ({ name: partNames[name], class: inner.includes(name) ? 'inner' : null, cells: runs.map((run, i) => cell(run, i, name)) }))));

// ---- ranks --------------------------------------------------------------------------------------

const loads = [['model', 'model', 'model'], ['orthogonalization', 'gather', 'ortho'], ['exchange and waiting', 'wait', 'wait']];
const range = (low, high) => low === high ? units.count(low) : `${units.count(low)} to ${units.count(high)}`;
const rankFigures = run => {
    const list = run.columns, head = i => `rank ${list[i].rank}`, size = { n: list.length, of: run.ranks, head, xName: 'rank', height: 210 };
    const shared = run.ranks > list.length ? ` Each column is the busiest of about ${Math.round(run.ranks / list.length)} neighbouring ranks.` : '';
    const work = run.sharing;
    return [chart.columns({ ...size, title: `${run.label}: work and waiting`, y: { format: units.seconds },
        text: `Of the whole run. The busiest rank worked ${units.number(work.busiest)} times the mean${work.matrices_max > 0 ? `; matrices of a rank: ${range(work.matrices_min, work.matrices_max)}` : ''}.${shared}`,
        keys: loads.map(([name, color]) => ({ name, class: color })),
        stacks: loads.map(([name, color, key]) => ({ name, class: color, values: list.map(load => load[key] ?? 0) })) }),
    list.some(load => load.bytes_sent > 0) && chart.columns({ ...size, title: `${run.label}: sent`, y: { format: units.bytes },
        text: `In the whole run: gradients, weights, and parts of Muon’s matrices.${shared}`,
        stacks: [{ name: 'sent', class: 'bytes', values: list.map(load => load.bytes_sent) }] })];
};
if (runs.some(run => run.totals.steps > 0))
    section('Ranks', runs.every(run => run.ranks === 1) ? 'One rank did all of the work: there was nothing to share.'
        : 'How evenly the work was shared, and what the sharing cost.',
    h('div', { class: 'grid' }, runs.filter(run => run.ranks > 1 && run.totals.steps > 0).map(rankFigures)));

// ---- what orthogonalization does ----------------------------------------------------------------

const spectrum = (run, one) => {
    const x = one.before.map((_, i) => i + 1), span = list => `${units.number(last(list) ?? NaN)} to ${units.number(list[0] ?? NaN)}`;
    return chart.lines({
        title: one.name, height: 190, text: `${run.label}, step ${units.count(one.step)}. Before: ${span(one.before)}; after: ${span(one.after)}.`,
        series: [{ class: 'c1', kind: 'line', name: 'before', x, y: one.before.map(v => v > 0 ? v : NaN) }, { class: 'c0', kind: 'line', name: 'after', x, y: one.after.map(v => v > 0 ? v : NaN) }],
        keys: [{ name: 'before', class: 'c1', line: true }, { name: 'after', class: 'c0', line: true }],
        x: { name: 'singular value' }, y: { format: units.plain, exact: units.number, log: true, floor: 1e-8 },
    });
};
const spectra = runs.flatMap(run => run.spectra.map(one => [run, one])).filter(([, one]) => one.before.length > 0).slice(0, 24);
if (spectra.length)
    section('What orthogonalization does', 'Singular values of an update, the largest being 1, and of what Muon makes of it. Before, few directions have nearly all of the strength; after, all have about the same.',
        h('div', { class: 'grid small' }, spectra.map(one => spectrum(...one))));

// ---- text and tables ----------------------------------------------------------------------------

if (runs.some(run => run.sample))
    section('What the models write', 'Byte by byte, from what they have learned.',
        h('div', { class: 'grid' }, runs.filter(run => run.sample).map(run => h('article', {}, h('h3', {}, run.label), h('pre', {}, run.sample)))));

const optional = (key, format, none) => each((run, i, at) => finite(lookUp(at + key) ?? NaN) ? num(at + key, format) : none);
const rows = [
    ['Parameters', optional('parameters', units.count)],
    ['Ranks', runs.map(run => `${units.count(run.ranks)} × ${plural(run.threads, 'thread')}`)],
    ['Steps', each((run, i, at) => [num(`${at}done`, units.count), run.done !== run.planned && ` of ${units.count(run.planned)}`])],
    ['Steps skipped', optional('skipped', units.count)],
    ['Resumed after step', runs.map((run, i) => run.resumed ? num(`runs.${i}.resumed`, units.count) : '–')],
    ['Checkpoints', runs.map((run, i) => [num(`runs.${i}.saves`, units.count), run.saves > 0 && [' in ', num(`runs.${i}.save_seconds`, units.seconds)]])],
    ['Tokens in a step', optional('tokens_per_step', units.count)],
    ['Tokens in all', optional('tokens', units.count)],
    ['Learning rate at its peak', optional('totals.lr_max', units.plain, 'none')],
    ['Training loss, last step', optional('last_loss', units.loss, 'none')],
    ['Validation loss, first', optional('first_validation', units.loss, 'none')],
    ['Validation loss, last', optional('last_validation', units.loss, 'none')],
    ['Validation loss, best', runs.map((run, i) => finite(run.best.loss) ? [num(`runs.${i}.best.loss`, units.loss), ', step ', num(`runs.${i}.best.step`, units.count)] : 'none')],
    ['The best in bits per byte', runs.map(run => finite(run.best.loss) ? units.loss(run.best.loss / Math.LN2) : 'none')],
    ['Largest attention logit', optional('totals.logit_max', units.number, 'none')],
    ['Heads above the QK-clip threshold', optional('totals.clipped_heads', units.count)],
    ['Tokens per second', optional('tokens_per_second', units.count)],
    ['Optimizer’s share of a step', optional('optimizer_share', units.percent)],
    ['Time with validation', optional('seconds', units.seconds)],
];
const settingNames = all(runs.flatMap(run => Object.keys(run.settings)));
const setting = value => value === undefined ? '–' : value !== '' && !Number.isNaN(Number(value)) ? units.plain(Number(value)) : value;
section('Runs', null, table(['', ...runs.map(run => run.label)], rows.map(([name, cells]) => ({ name, cells }))));
if (settingNames.length)
    section('Settings', null, table(['', ...runs.map(run => run.label)], settingNames.map(name => ({ name, cells: runs.map(run => setting(run.settings[name])) }))));
page.append(h('footer', {}, `libmuon ${data.version}, muonctl train.`));
finish(`${runs.slice(0, 3).map(run => run.label).join(', ')} - muonctl train`);
