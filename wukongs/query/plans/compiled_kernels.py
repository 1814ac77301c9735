# mypy: disallow-untyped-defs=false
"""The kernels of compiled plans: one call with one array of addresses, which lays the parts out and runs the plan."""

from __future__ import annotations

from wukongs.query.plans.condition_kernels import keep_rows
from wukongs.query.plans.plan_kernels import run_steps, start_step
from wukongs.query.plans.plan_layout import (
    CALL_GOES_ON,
    CALL_OUT,
    CALL_PLAN,
    CALL_ROOM,
    CALL_ROWS,
    CALL_SEED_COUNT,
    CALL_SEEDS,
    CALL_SPACE,
    CALL_WINDOWS,
    COMPILED_CHUNK_ROWS,
    COMPILED_CHUNKS,
    COMPILED_FUEL,
    COMPILED_PARTS_MAX,
    COMPILED_SPANS,
    CONDITION_WIDTH,
    COUNT,
    DONE,
    FUEL,
    HIDING,
    NO_ROOM,
    NO_VERDICT,
    PART_BATCH,
    PART_GRAPH,
    PART_NAME,
    PART_WIDTH,
    PARTS_FROM,
    PARTS_TO,
    PLAN_COLUMNS,
    PLAN_CONDITIONS,
    PLAN_DEFAULT_GRAPH,
    PLAN_HEAD,
    PLAN_SOURCES,
    PLAN_STEPS,
    PROBED_FILTER,
    PROBED_FROM,
    PROBED_SHIFT,
    PROBED_TO,
    PROBED_WIDTH,
    SOURCE_ACCESS,
    SOURCE_GRAPH,
    SOURCE_NAME,
    SOURCE_WIDTH,
    SOURCE_WINDOW,
    SPACE_CONTROL,
    SPACE_PART_ROWS,
    SPACE_PARTS,
    SPACE_PROBED,
    SPACE_SPANS,
    SPACE_STATE,
    SPACE_STEPS,
    SPACE_TABLES,
    SPACE_UNIT,
    SPACE_VALUE_SPANS,
    SPAN_WIDTH,
    STATE_WIDTH,
    STEP_WIDTH,
    UNION,
)
from wukongs.store.addresses import int64_array, int64_table, int64_tables
from wukongs.store.jit import njit_uncounted
from wukongs.store.layout import (
    ACCESS_COUNT,
    ACCESS_FILTER,
    ACCESS_FIRST,
    ACCESS_SHIFT,
    ACCESS_WIDTH,
    DESCRIPTOR_WIDTH,
    HEAD_ACCESS_COUNT,
    HEAD_ACCESSES,
    HEAD_DESCRIPTOR_COUNT,
    HEAD_DESCRIPTORS,
    HEAD_PROBE_COUNT,
    HEAD_PROBES,
    HEAD_WIDTH,
    HEAD_WINDOW_COUNT,
    HEAD_WINDOWS,
    PROBE_WIDTH,
    WINDOW_COUNT,
    WINDOW_FIRST,
    WINDOW_HIDES,
    WINDOW_OVERLAPS,
    WINDOW_WIDTH,
)


@njit_uncounted
def lay_out(planned, sources, windows, accesses, steps, parts, probed):
    """Point the steps of a plan at the batches that its windows have now.

    Parameters
    ----------
    planned : int64[n_steps, STEP_WIDTH]; sources : int64[n, SOURCE_WIDTH]; windows : int64[n_windows, WINDOW_WIDTH];
        accesses : int64[n_accesses, ACCESS_WIDTH].
    steps : int64[n_steps, STEP_WIDTH]; parts : int64[n_parts_max, PART_WIDTH]; probed : int64[n_steps, PROBED_WIDTH];
        written. A step that probes has no parts.

    Returns the count of parts, -1 if there is no room for them.
    """
    m = 0
    for s in range(planned.shape[0]):
        for column in range(STEP_WIDTH):
            steps[s, column] = planned[s, column]
        steps[s, PARTS_FROM] = m
        steps[s, UNION] = 1 if planned[s, PARTS_TO] - planned[s, PARTS_FROM] > 1 else 0
        steps[s, HIDING] = 0
        probed[s, PROBED_FROM] = -1
        q = planned[s, PARTS_FROM]
        if steps[s, UNION] == 0 and q < planned[s, PARTS_TO] and sources[q, SOURCE_ACCESS] >= 0:
            window = windows[sources[q, SOURCE_WINDOW]]
            if window[WINDOW_HIDES] == 0:
                access = accesses[sources[q, SOURCE_ACCESS]]
                probed[s, PROBED_FROM] = access[ACCESS_FIRST]
                probed[s, PROBED_TO] = access[ACCESS_FIRST] + access[ACCESS_COUNT]
                probed[s, PROBED_FILTER] = access[ACCESS_FILTER]
                probed[s, PROBED_SHIFT] = access[ACCESS_SHIFT]
                steps[s, UNION] = window[WINDOW_OVERLAPS]
                steps[s, PARTS_TO] = m
                continue
        for q in range(planned[s, PARTS_FROM], planned[s, PARTS_TO]):
            window = windows[sources[q, SOURCE_WINDOW]]
            steps[s, UNION] |= window[WINDOW_OVERLAPS]
            steps[s, HIDING] |= window[WINDOW_HIDES]
            if m + window[WINDOW_COUNT] > parts.shape[0]:
                return -1
            for batch in range(window[WINDOW_COUNT]):
                parts[m, PART_BATCH] = window[WINDOW_FIRST] + batch
                parts[m, PART_GRAPH] = sources[q, SOURCE_GRAPH]
                parts[m, PART_NAME] = sources[q, SOURCE_NAME]
                m += 1
        steps[s, PARTS_TO] = m
    return m


@njit_uncounted
def run_call(call):
    """Run one compiled plan over the windows as they stand now.

    Parameters
    ----------
    call : int64[CALL_WIDTH]         Its CALL_ROWS is written. All that it points at must outlive the call.

    Returns the count of rows, or another status than DONE below 0: -NO_ROOM, or minus what run_plan (plan_kernels.py)
    returns. After FULL: take the rows, set CALL_GOES_ON and call again. After PAUSED: the same; there may be no rows.
    In between nobody else may use the workspace. After NEED_SPANS, NO_ROOM and NO_VERDICT the plan has to be run in
    another way.
    """
    plan = int64_array(call[CALL_PLAN], PLAN_HEAD)
    n, width = plan[PLAN_STEPS], plan[PLAN_COLUMNS]
    space = call[CALL_SPACE]
    steps = int64_table(space + 8 * SPACE_STEPS, n, STEP_WIDTH)
    parts = int64_table(space + 8 * SPACE_PARTS, COMPILED_PARTS_MAX, PART_WIDTH)
    state = int64_table(space + 8 * SPACE_STATE, n + 1, STATE_WIDTH)
    control = int64_array(space + 8 * SPACE_CONTROL, 2)
    probed = int64_table(space + 8 * SPACE_PROBED, n, PROBED_WIDTH)
    seed_count = call[CALL_SEED_COUNT]
    head = int64_array(call[CALL_WINDOWS], HEAD_WIDTH)
    if call[CALL_GOES_ON] == 0:
        planned = int64_table(call[CALL_PLAN] + 8 * PLAN_HEAD, n, STEP_WIDTH)
        sources = int64_table(call[CALL_PLAN] + 8 * (PLAN_HEAD + n * STEP_WIDTH), plan[PLAN_SOURCES], SOURCE_WIDTH)
        windows = int64_table(head[HEAD_WINDOWS], head[HEAD_WINDOW_COUNT], WINDOW_WIDTH)
        accesses = int64_table(head[HEAD_ACCESSES], head[HEAD_ACCESS_COUNT], ACCESS_WIDTH)
        if lay_out(planned, sources, windows, accesses, steps, parts, probed) < 0:
            return -NO_ROOM
        for s in range(n + 1):
            for column in range(STATE_WIDTH):
                state[s, column] = 0
        start_step(state, 0, max(1, seed_count))
        state[n, FUEL] = COMPILED_FUEL
        control[0] = 0
    state[n, COUNT] = 0
    control[1] = COMPILED_CHUNKS
    out = int64_table(call[CALL_OUT], call[CALL_ROOM], width)
    status = run_steps(
        steps,
        parts,
        int64_array(space + 8 * SPACE_PART_ROWS, COMPILED_PARTS_MAX),
        int64_table(head[HEAD_DESCRIPTORS], head[HEAD_DESCRIPTOR_COUNT], DESCRIPTOR_WIDTH),
        plan[PLAN_DEFAULT_GRAPH],
        int64_table(call[CALL_SEEDS] if seed_count > 0 else space + 8 * SPACE_UNIT, max(1, seed_count), width),
        int64_tables(space + 8 * SPACE_TABLES, n - 1, COMPILED_CHUNK_ROWS, width),
        out,
        state,
        int64_tables(space + 8 * SPACE_SPANS, n, COMPILED_SPANS, SPAN_WIDTH),
        int64_table(space + 8 * SPACE_VALUE_SPANS, COMPILED_SPANS, SPAN_WIDTH),
        control,
        int64_table(head[HEAD_PROBES], head[HEAD_PROBE_COUNT], PROBE_WIDTH),
        probed,
    )
    rows = state[n, COUNT]
    if plan[PLAN_CONDITIONS] > 0:
        first = call[CALL_PLAN] + 8 * (PLAN_HEAD + n * STEP_WIDTH + plan[PLAN_SOURCES] * SOURCE_WIDTH)
        conditions = int64_table(first, plan[PLAN_CONDITIONS], CONDITION_WIDTH)
        # Limits count the rows before the conditions, so it does not go on.
        rows = keep_rows(out, rows, conditions) if status == DONE else -1
        if rows < 0:
            return -NO_VERDICT
    call[CALL_ROWS] = rows
    return rows if status == DONE else -status
