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
        if (at.loss <= target && !before) return at.step;
        if (at.loss <= target)
            return Math.ceil(before.step + (before.loss - target) / (before.loss - at.loss) * (at.step - before.step));
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
    const gap = other.loss - ahead.loss, [first, second] = [ahead.run.label, other.run.label];
    const [less, more] = [units.loss(ahead.loss), units.loss(other.loss)];
    if (gap < 1e-4) return [`${first} and ${second} end level: a ${ahead.kind} of ${less} and ${more}.`];
    const step = reached(ahead.run, other.loss), earlier = other.step - step;
    const apart = ahead.step === other.step ? ''
        : ` (after ${units.count(ahead.step)} and ${units.count(other.step)} steps)`;
    const sooner = ahead.kind === other.kind && earlier > 0 && say(
        `It reached the loss that ${second} ended with after about ${plural(step, 'step')},`,
        `${plural(earlier, 'step')} (${units.percent(earlier / other.step)}) sooner.`, tellTimes(ahead, other, step));
    return [h('strong', {}, `${first} is ahead of ${second} by ${units.loss(gap)}`),
        ` at the end, with a ${ahead.kind} of ${less} against ${more} nats per byte${apart}. `, sooner];
};
const tellOne = ({ run, loss, kind }) => Number.isNaN(loss)
    ? [`${run.label} has no loss to show.`]
    : [`${run.label} ended at a ${kind} of ${units.loss(loss)} nats per byte`,
        ` after ${units.count(run.done)} of ${plural(run.planned, 'step')}`,
        run.seconds > 0 && `, in ${units.seconds(run.seconds)}`, '.'];
const tellStopped = run => `${run.label} was stopped after ${units.count(run.done)} of ${plural(run.planned, 'step')}.`;
const tellResumed = run => run.resumed > 0 && `${run.label} went on from a checkpoint of step ` +
    `${units.count(run.resumed)}: curves but for validation, and all times, begin there.`;
const tellSkipped = run => run.skipped > 0 &&
    `${run.label} skipped ${plural(run.skipped, 'step')} that had a NaN or infinity.`;
const notes = () => {
    const stopped = runs.filter(run => run.done < run.planned);
    return say(stopped.length > 2 ? `${stopped.length} runs were stopped before their last step.`
        : stopped.map(tellStopped), runs.map(tellResumed), runs.map(tellSkipped));
};

// ---- the top ------------------------------------------------------------------------------------

const sorted = runs.map(outcomeOf).sort((a, b) => (Number.isNaN(a.loss) - Number.isNaN(b.loss)) || a.loss - b.loss);
const title = runs.length === 1 ? `Training with ${runs[0].label}` : runs.length === 2
    ? `${runs[0].label} against ${runs[1].label}` : `${runs.length} training runs`;
const all = list => [...new Set(list.filter(Boolean))];
const prefix = (run, after) => runs.length > 1 ? run.label + after : '';
const rates = runs.map(run => run.totals.lr_max > 0 && `${prefix(run, ' ')}lr ${units.plain(run.totals.lr_max)}`);
const seeds = all(runs.map(run => run.settings.seed));
// A line for each run, or one if they are the same.
const once = key => {
    const texts = all(runs.map(run => run[key]));
    return texts.length < 2 ? texts : runs.filter(run => run[key]).map(run => `${run.label}: ${run[key]}`);
};

const values = (key, format) =>
    h('dl', {}, each((run, i, at) => [h('dt', {}, run.label), h('dd', {}, num(at + key, format))]));
const middle = run => {
    const list = run.curves.seconds.filter(finite).sort((a, b) => a - b), n = list.length;
    const quarter = part => units.seconds(list[Math.floor(part * n / 4)]);
    return n > 3 && h('p', {}, `${prefix(run, ': ')}half of the steps took ${quarter(1)} to ${quarter(3)}`);
};
const runTile = (name, key, format, text) => h('div', { class: 'tile' }, h('h3', {}, name), values(key, format), text);
page.append(
    h('h1', {}, title),
    h('p', { class: 'lead muted' }, [...all(rates), seeds.length && `seed ${seeds.join(', ')}`].filter(Boolean).join(', ')),
    h('p', { class: 'lead', id: 'summary' },
        sorted.length > 1 && !Number.isNaN(sorted[1].loss) ? tellTwo(...sorted) : tellOne(sorted[0]), ' ', notes()),
    ...once('description').map(text => h('p', { class: 'muted' }, text)),
    ...once('machine').map(text => h('p', { class: 'muted' }, `Machine: ${text}.`)),
    h('div', { class: 'tiles runs' },
        runTile('Loss at the end, nats per byte', 'final_loss', units.loss),
        runTile('Time of a step, mean', 'step_seconds', units.seconds, runs.length < 3 && runs.map(middle)),
        runTile('Tokens per second', 'tokens_per_second', units.count),
        runTile('Optimizer’s share of a step', 'optimizer_share', units.percent)));

// ---- learning -----------------------------------------------------------------------------------

const end = Math.max(1, ...runs.map(run => Math.max(run.planned, run.done)));
// The mean of about a thirtieth of the run around each step. Near the beginning, where the loss falls fast, it
// takes as much from both sides; near the end, what there is.
const smooth = list => {
    const half = Math.floor(list.length / 60);
    return list.map((value, i) => {
        const before = Math.min(i, half), near = list.slice(i - before, i + before + 1).filter(finite);
        return finite(value) ? near.reduce((a, b) => a + b, 0) / near.length : NaN;
    });
};
const from = (series, first) => {
    const i = series.x.findIndex(value => value >= first);
    return i < 0 ? { ...series, x: [], y: [] } : { ...series, x: series.x.slice(i), y: series.y.slice(i) };
};
const isShown = runs.length <= 3; // single batches of more would hide each other
const lossesOf = ({ label, curves, validations }, i) => [
    isShown && { kind: 'faint', x: curves.step, y: curves.loss },
    { kind: 'line', name: `${label}, training`, x: curves.step, y: smooth(curves.loss) },
    validations.step.length > 0 &&
        { kind: 'marks', shape: i, name: `${label}, validation`, x: validations.step, y: validations.loss },
].filter(Boolean).map(series => ({ ...series, class: colour(i) }));
const losses = runs.flatMap(lossesOf);
const keys = each((run, i) => ({ name: run.label, class: colour(i), line: true }));
const lossText = `Nats per byte. Lines: training, the mean of nearby batches${isShown ? ', which are faint' : ''}; ` +
    'marks: validation, on text that is not trained on.';
const overSteps = (how, series) => series.some(one => one.y.some(finite)) &&
    chart.lines({ height: 200, keys, ...how, series, x: { name: 'step', low: how.first || 0, high: end } });
const curve = (key, title, text, y) => runs.some(run => run.curves[key].some(value => finite(value) && value !== 0)) &&
    overSteps({ title, text, y: { format: units.plain, exact: units.number, ...y } }, each((run, i) =>
        ({ class: colour(i), kind: 'line', name: run.label, x: run.curves.step, y: run.curves[key] })));
const half = Math.floor(end / 2);
const lossAxis = { format: units.plain, exact: units.loss, log: true };
section('Learning', null, h('div', { class: 'grid' },
    overSteps({ title: 'Loss', text: lossText, wide: true, height: 340, y: lossAxis }, losses),
    half >= 10 && overSteps({ title: 'Loss, the second half', text: 'The same, closer.', wide: true, height: 280,
        first: half, y: lossAxis }, losses.map(series => from(series, half))),
    curve('lr', 'Learning rate', 'Of Muon’s matrices; without Muon, of AdamW’s.', { zero: true }),
    curve('grad_norm', 'Gradient norm', 'Of all parameters together, before clipping.', { zero: true, log: true }),
    curve('max_logit', 'Largest attention logit', 'Before the softmax, of all heads.', { zero: true, log: true }),
    curve('clipped_heads', 'Heads above the QK-clip threshold', 'In each step.', { zero: true, format: units.elements }),
    curve('balance', 'Load-balancing loss', 'How unevenly experts are used.', {})));

// ---- time ---------------------------------------------------------------------------------------

const partNames = {
    model: 'model, forward and backward', exchange: 'exchange between ranks', optimizer: 'optimizer',
    check: 'check and norm of gradients', momentum: 'momentum', gather: 'gather, waiting for parts',
    ortho: 'orthogonalization', scatter: 'scatter, waiting for results', update: 'update of Muon’s weights',
    adamw: 'AdamW', qk_clip: 'QK-clip', offload: 'offload, waiting for state', team: 'waiting for a team', rest: 'all else',
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
                return { begin, end: at, class: part, head: run.label, rows: [
                    { class: part, name: partNames[part], text: units.seconds(seconds) },
                    { name: 'of this bar', text: units.percent(seconds / whole) }] };
            }) };
        }),
    });
};
const cell = (run, i, name) => {
    const part = run.time[name], small = (...parts) => h('small', {}, parts);
    const get = (key, format) => num(`runs.${i}.time.${name}.${key}`, format);
    if (!(part?.seconds > 0)) return '–';
    return [get('seconds', units.seconds), small(units.percent(part.seconds / stepOf(run))),
        part.flops_rate > 0 ? small(get('flops_rate', units.flops), '/s')
            : part.bytes_rate > 0 && small(get('bytes_rate', units.bytes), '/s'),
        run.ranks > 1 && part.spread > 0 && small('slowest rank ', get('spread', units.ratio), ' fastest')];
};
const labels = runs.map(run => run.label);
const timeRow = name => ({ name: partNames[name], class: inner.includes(name) ? 'inner' : null,
    cells: runs.map((run, i) => cell(run, i, name)) });
if (runs.some(run => stepOf(run) > 0))
    section('Time', runs.every(run => run.ranks === 1) ? 'The mean of all steps.'
        : 'The mean of all steps and ranks. Where ranks wait for each other, that is part of the exchange.',
    h('div', { class: 'grid' },
        bars('A step', 'The model, what ranks send each other, and the optimizer.', outer),
        bars('Inside the optimizer', 'Its phases in their order, on a scale of their own.', inner)),
    table(['of a step', ...labels],
        [...outer, ...inner].filter(name => runs.some(run => secondsOf(run, name) > 0)).map(timeRow)));

// ---- ranks --------------------------------------------------------------------------------------

const loads = [['model', 'model', 'model'], ['orthogonalization', 'gather', 'ortho'],
    ['exchange and waiting', 'wait', 'wait']];
const range = (low, high) => low === high ? units.count(low) : `${units.count(low)} to ${units.count(high)}`;
const rankFigures = run => {
    const list = run.columns, work = run.sharing, title = what => `${run.label}: ${what}`;
    const size = { n: list.length, of: run.ranks, head: i => `rank ${list[i].rank}`, xName: 'rank', height: 210 };
    const shared = run.ranks > list.length &&
        `Each column is the busiest of about ${Math.round(run.ranks / list.length)} neighbouring ranks.`;
    const matrices = work.matrices_max > 0 && `Matrices of a rank: ${range(work.matrices_min, work.matrices_max)}.`;
    const stacks = loads.map(([name, color, key]) => ({ name, class: color, values: list.map(load => load[key] ?? 0) }));
    const sent = [{ name: 'sent', class: 'bytes', values: list.map(load => load.bytes_sent) }];
    return [chart.columns({ ...size, title: title('work and waiting'), stacks, keys: stacks, y: { format: units.seconds },
        text: say(`Of the whole run. The busiest rank worked ${units.number(work.busiest)} times the mean.`, matrices, shared) }),
    list.some(load => load.bytes_sent > 0) && chart.columns({ ...size, title: title('sent'), stacks: sent,
        y: { format: units.bytes }, text: say('In the whole run: gradients, weights, and parts of Muon’s matrices.', shared) })];
};
if (runs.some(run => run.totals.steps > 0))
    section('Ranks', runs.every(run => run.ranks === 1) ? 'One rank did all of the work: there was nothing to share.'
        : 'How evenly the work was shared, and what the sharing cost.',
    h('div', { class: 'grid' }, runs.filter(run => run.ranks > 1 && run.totals.steps > 0).map(rankFigures)));

// ---- what orthogonalization does ----------------------------------------------------------------

const spectrum = (run, one) => {
    const x = one.before.map((_, i) => i + 1);
    const span = list => `${units.number(last(list) ?? NaN)} to ${units.number(list[0] ?? NaN)}`;
    const lines = [['before', 'c1'], ['after', 'c0']].map(([name, color]) =>
        ({ name, class: color, kind: 'line', line: true, x, y: one[name].map(value => value > 0 ? value : NaN) }));
    return chart.lines({
        title: one.name, height: 190, series: lines, keys: lines, x: { name: 'singular value' },
        text: say(`${run.label}, step ${units.count(one.step)}. Before: ${span(one.before)};`, `after: ${span(one.after)}.`),
        y: { format: units.plain, exact: units.number, log: true, floor: 1e-8 },
    });
};
const spectra = runs.flatMap(run => run.spectra.filter(one => one.before.length > 0).map(one => [run, one]));
const mostSpectra = 24;
if (spectra.length)
    section('What orthogonalization does', say('Singular values of an update, the largest being 1, and of what Muon makes',
        'of it. Before, few directions have nearly all of the strength; after, all have about the same.',
        spectra.length > mostSpectra && `${mostSpectra} of ${spectra.length} are shown.`),
    h('div', { class: 'grid small' }, spectra.slice(0, mostSpectra).map(one => spectrum(...one))));

// ---- text and tables ----------------------------------------------------------------------------

if (runs.some(run => run.sample))
    section('What the models write', 'Byte by byte, from what they have learned.',
        h('div', { class: 'grid' }, runs.filter(run => run.sample)
            .map(run => h('article', {}, h('h3', {}, run.label), h('pre', {}, run.sample)))));

const optional = (key, format, none) =>
    each((run, i, at) => finite(lookUp(at + key) ?? NaN) ? num(at + key, format) : none);
const rows = [
    ['Parameters', optional('parameters', units.count)],
    ['Ranks', runs.map(run => `${units.count(run.ranks)} × ${plural(run.threads, 'thread')}`)],
    ['Steps', each((run, i, at) =>
        [num(`${at}done`, units.count), run.done !== run.planned && ` of ${units.count(run.planned)}`])],
    ['Steps skipped', optional('skipped', units.count)],
    ['Resumed after step', runs.map((run, i) => run.resumed ? num(`runs.${i}.resumed`, units.count) : '–')],
    ['Checkpoints', each((run, i, at) =>
        [num(`${at}saves`, units.count), run.saves > 0 && [' in ', num(`${at}save_seconds`, units.seconds)]])],
    ['Tokens in a step', optional('tokens_per_step', units.count)],
    ['Tokens in all', optional('tokens', units.count)],
    ['Learning rate at its peak', optional('totals.lr_max', units.plain, 'none')],
    ['Training loss, last step', optional('last_loss', units.loss, 'none')],
    ['Validation loss, first', optional('first_validation', units.loss, 'none')],
    ['Validation loss, last', optional('last_validation', units.loss, 'none')],
    ['Validation loss, best', each((run, i, at) => finite(run.best.loss)
        ? [num(`${at}best.loss`, units.loss), ', step ', num(`${at}best.step`, units.count)] : 'none')],
    ['The best in bits per byte', runs.map(run => finite(run.best.loss) ? units.loss(run.best.loss / Math.LN2) : 'none')],
    ['Largest attention logit', optional('totals.logit_max', units.number, 'none')],
    ['Heads above the QK-clip threshold', optional('totals.clipped_heads', units.count)],
    ['Tokens per second', optional('tokens_per_second', units.count)],
    ['Optimizer’s share of a step', optional('optimizer_share', units.percent)],
    ['Time with validation', optional('seconds', units.seconds)],
];
const settingNames = all(runs.flatMap(run => Object.keys(run.settings)));
const isNumber = text => text.trim() !== '' && !Number.isNaN(Number(text));
const setting = text => text === undefined ? '–' : isNumber(text) ? units.plain(Number(text)) : text;
section('Runs', null, table(['', ...labels], rows.map(([name, cells]) => ({ name, cells }))));
if (settingNames.length)
    section('Settings', null, table(['', ...labels],
        settingNames.map(name => ({ name, cells: runs.map(run => setting(run.settings[name])) }))));
page.append(h('footer', {}, `libmuon ${data.version}, muonctl train.`));
finish(`${runs.slice(0, 3).map(run => run.label).join(', ')} - muonctl train`);
