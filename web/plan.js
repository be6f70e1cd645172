// The page of a plan: data is what `muonctl plan --json` prints, and more of the same.

const { machine, bounds, timelines, traffic } = data;
const columns = data.columns;

// ---- the top ------------------------------------------------------------------------------------

const boundNames = {
    work: 'all work shared evenly', matrix: 'the slowest matrix with its best team', bytes: 'the bytes that must move',
    teams: 'work and exchanges of teams that are fast enough',
};
page.append(
    h('h1', {}, `${data.model} on ${plural(data.ranks, 'rank')}`),
    h('p', { class: 'muted' }, data.axes && `${data.axes}; `, num('matrices', units.count), ' matrices in ',
        num('tensors', units.count), data.tensors === 1 ? ' tensor, ' : ' tensors, ', num('parameters', units.elements),
        ' parameters, ', num('flops', units.flops), ' per step.'),
    h('p', { class: 'muted' }, `Machine (${machine.profile}): a rank computes `, num('machine.flops', units.flops),
        '/s and sends ', num('machine.node_bandwidth', units.bytes), '/s inside a node, ',
        num('machine.bandwidth', units.bytes), `/s between nodes; ${machine.wire} wire; `,
        `${plural(data.nodes, 'node')} of ${units.count(machine.ranks_per_node)}.`),
    h('div', { class: 'tiles' },
        tile('Predicted for a step', num('makespan_seconds', units.seconds), 'orthogonalization and its messages'),
        tile('Against the lower bound', units.ratio(data.makespan_seconds / data.lower_bound_seconds),
            [num('lower_bound_seconds', units.seconds), `: ${boundNames[bounds.binding]}`]),
        tile('Busiest rank', num('imbalance', units.ratio), 'the mean work'),
        data.teams > 0 && tile('Shared matrices', num('teams', units.count),
            ['by teams of up to ', num('team_max', units.count), ' ranks']),
        data.relayed_bytes > 0 && tile('Relayed', num('relayed_bytes', units.bytes),
            'received and sent once more, by all ranks'),
        tile('Bytes of a rank', num('bytes_per_rank_max', units.bytes),
            ['at most; ', num('bytes_per_rank_mean', units.bytes), ' on average, sent and received']),
        tile('Workspace of a rank', num('workspace_bytes_max', units.bytes),
            ['at most; ', num('state_bytes_first', units.bytes), ' of state on rank 0'])));

// ---- load ---------------------------------------------------------------------------------------

const perColumn = data.ranks / columns.length;
const rules = [
    { name: 'predicted', class: 'predicted', dash: '', value: data.makespan_seconds,
        text: `predicted ${units.seconds(data.makespan_seconds)}` },
    ...[['work', 'c6', '8 4'], ['matrix', 'c4', '3 3'], ['bytes', 'c5', '1 4'], ['teams', 'c2', '6 2 1 2']].map(([name, color, dash]) => ({
        name, class: color, dash, value: bounds[`${name}_seconds`],
        text: `bound by ${name}, ${boundNames[name]}: ${units.seconds(bounds[`${name}_seconds`])}`,
    })),
];
const overRanks = { n: columns.length, of: data.ranks, head: i => `rank ${columns[i].rank}`, xName: 'rank', height: 190 };
const stack = (name, color, key) => ({ name, class: color, values: columns.map(load => load[key]) });
const ofRanks = (title, format, stacks, how) =>
    chart.columns({ ...overRanks, title, stacks, y: { format }, keys: stacks.length > 1 ? stacks : [], ...how });
const timeStacks = [stack('work', 'work', 'work_seconds'), stack('messages', 'message', 'message_seconds')];
section('Load of the ranks', perColumn > 1
    ? `Each column is the busiest of about ${Math.round(perColumn)} neighbouring ranks.`
    : 'A column for each rank.',
h('div', { class: 'grid' },
    ofRanks('Time', units.seconds, timeStacks, {
        wide: true, height: 300, overlay: true, rules, keys: [...timeStacks, ...rules],
        text: 'Work and messages overlap in a step. No plan can be faster than the highest of the bounds.',
    }),
    ofRanks('Matrices', units.count, [stack('matrices', 'work', 'matrices')]),
    data.ranks > 1 && ofRanks('Bytes', units.bytes,
        [stack('sent', 'scatter', 'bytes_sent'), stack('received', 'gather', 'bytes_received')])));

// ---- waves --------------------------------------------------------------------------------------

const lanes = [['gather', 'gather'], ['compute', 'work'], ['scatter', 'scatter']];
const laneRows = (wave, name) => name === 'compute'
    ? [{ name: 'matrices', text: units.count(wave.matrices) }, { name: 'work', text: units.flops(wave.flops) }]
    : ['sent', 'received'].map(way => ({ name: way, text: units.bytes(wave[`${name}_${way}`]) }));
const inTime = line => chart.strips({
    title: `Rank ${line.rank}, ${line.role}`, wide: true, format: units.seconds, xName: 'time since the first message',
    text: `${plural(line.matrices, 'matrix', 'matrices')}, ${units.seconds(line.work_seconds)} of work, ` +
        `${units.seconds(line.message_seconds)} of messages. Numbers are waves.`,
    keys: lanes.map(([name, color]) => ({ name, class: color })),
    rows: lanes.map(([name, color]) => ({
        name, spans: line.waves.map((wave, i) => ({
            begin: wave[name][0], end: wave[name][1], class: color, label: String(i), head: `wave ${i}, ${name}`,
            rows: [{ class: color, name: 'takes', text: units.seconds(wave[name][1] - wave[name][0]) },
                { name: 'begins at', text: units.seconds(wave[name][0]) }, ...laneRows(wave, name)],
        })),
    })),
});
const ways = [['gather, sent', 'gather', 'gather_sent'], ['gather, received', 'c6', 'gather_received'],
    ['scatter, sent', 'scatter', 'scatter_sent'], ['scatter, received', 'c5', 'scatter_received']];
const waveBytes = line => {
    const stacks = ways.map(([name, color, key]) => ({ name, class: color, values: line.waves.map(wave => wave[key]) }));
    return chart.columns({
        title: `Rank ${line.rank}: bytes of each wave`, height: 210, xName: 'wave', y: { format: units.bytes },
        text: 'Gathers bring the parts of a matrix to its owner; scatters bring the results back.',
        n: line.waves.length, head: i => `wave ${i}`, stacks, keys: stacks,
    });
};
const moves = timelines.filter(line => line.bytes_sent + line.bytes_received > 0);
section('Waves in time', `${plural(data.waves, 'wave')}, ${data.in_flight} in flight; as if no rank waited for another.`,
    h('div', { class: 'grid' }, timelines.map(inTime), moves.map(waveBytes)));

// ---- who sends to whom --------------------------------------------------------------------------

const groups = traffic.groups, size = data.ranks / groups;
const firstOf = group => Math.ceil(group * size);
const groupName = group => size === 1 ? `rank ${group}` : `ranks ${firstOf(group)} to ${firstOf(group + 1) - 1}`;
const sum = list => list.reduce((a, b) => a + b, 0);
const trafficOf = (title, what, values) => {
    const total = sum(values), inside = sum(values.filter((_, i) => Math.floor(i / groups) === i % groups));
    const top = values.indexOf(Math.max(...values));
    const own = size > 1 && `${units.percent(inside / total)} stays among the ${Math.round(size)} ranks of ` +
        'a square on the diagonal.';
    return chart.matrix({
        title, n: groups, values, format: units.bytes, long: groupName, short: group => String(firstOf(group)),
        text: [what, `${units.bytes(total)} in all; most from ${groupName(Math.floor(top / groups))}`,
            `to ${groupName(top % groups)}, ${units.bytes(values[top])}.`, own,
            'The stronger the colour, the more, on a logarithmic scale.'].filter(Boolean).join(' '),
    });
};
const pairs = [['Gather', 'Parts of matrices, to their owners:', traffic.gather],
    ['Scatter', 'Results, from the owners back:', traffic.scatter]].filter(([, , values]) => sum(values) > 0);
section('Who sends to whom', pairs.length ? 'In one step, all waves together.'
    : 'Nothing: every rank has all of the matrices that it orthogonalizes.',
h('div', { class: 'grid' }, pairs.map(pair => trafficOf(...pair))));

// ---- other schemes ------------------------------------------------------------------------------

const schemes = [
    { name: 'this plan', key: '', class: 'work' },
    { name: 'round-robin', key: 'round_robin.', class: 'other' },
    { name: 'padded', key: 'padded.', class: 'other' },
];
const schemeBars = (title, key, format) => chart.strips({
    title, format,
    rows: schemes.map(scheme => {
        const value = lookUp(scheme.key + key), ratio = units.ratio(value / data[key]);
        const rows = [{ class: scheme.class, name: title, text: format(value) }, { name: 'this plan’s', text: ratio }];
        return { name: scheme.name, note: scheme.key ? `${format(value)}, ${ratio}` : format(value),
            spans: [{ begin: 0, end: value, class: scheme.class, head: scheme.name, rows }] };
    }),
});
const schemeNumbers = [['makespan_seconds', units.seconds], ['bytes_per_rank_max', units.bytes],
    ['padding_bytes', units.bytes]];
section('Other schemes', 'Round-robin: matrices by cost, in turn, in each group that shards them. ' +
    'Padded: an all-to-all of each shape, padded to the group.',
h('div', { class: 'grid' }, schemeBars('Time of a step', 'makespan_seconds', units.seconds),
    data.bytes_per_rank_max > 0 && schemeBars('Bytes of the rank with most', 'bytes_per_rank_max', units.bytes)),
table(['scheme', 'time', 'bytes of a rank', 'padding'], schemes.map(scheme => ({
    name: scheme.name, cells: schemeNumbers.map(([key, format]) => num(scheme.key + key, format)),
}))));

// ---- numbers ------------------------------------------------------------------------------------

section('Ranks in numbers', null, table(['', ...timelines.map(line => `rank ${line.rank}, ${line.role}`)],
    [['matrices', 'matrices', units.count], ['work', 'flops', units.flops],
        ['time of work', 'work_seconds', units.seconds], ['time of messages', 'message_seconds', units.seconds],
        ['messages sent', 'messages_sent', units.count], ['messages received', 'messages_received', units.count],
        ['bytes sent', 'bytes_sent', units.bytes],
        ['bytes received', 'bytes_received', units.bytes], ['state', 'state_bytes', units.bytes],
        ['workspace', 'workspace_bytes', units.bytes]]
        .map(([name, key, format]) => ({ name, cells: timelines.map((_, i) => num(`timelines.${i}.${key}`, format)) }))));
page.append(h('footer', {}, `libmuon ${data.version}, muonctl plan. Hash of the plan: ${data.hash}.`));
finish(`${data.model} on ${plural(data.ranks, 'rank')}`);
