// Package report turns what was measured into medians, a table and JSON.
package report

// Value is one measured figure.
type Value struct {
	Metric string
	Value  float64
}

// Metric is what a figure means.
type Metric struct {
	Name   string
	Unit   string
	Higher bool // is better
	Plain  bool // it is a ratio already, or only tells the circumstances: not compared
	Means  string
}

// Metrics are all there are, in the order of the table.
var Metrics = []Metric{
	{"steps_per_s", "1/s", true, false, "durable steps a second, from the begin of Work until the last run has succeeded (W8, W9, W12: in the time window)"},
	{"client_cpu_us_per_step", "µs", false, false, "processor time of the worker process"},
	{"server_cpu_us_per_step", "µs", false, false, "processor time of PostgreSQL, all its processes"},
	{"client_peak_memory_mib", "MiB", false, false, "most resident memory (VmHWM) of the worker process while it works"},
	{"start_to_first_step_p50_ms", "ms", false, false, "from the call that starts a run to the begin of its first step's body"},
	{"start_to_first_step_p99_ms", "ms", false, false, "the same"},
	{"step_to_step_p50_ms", "ms", false, false, "from the begin of a step's body to that of the next"},
	{"step_to_step_p99_ms", "ms", false, false, "the same"},
	{"start_to_result_p50_ms", "ms", false, false, "from the call that starts a run to its known result"},
	{"start_to_result_p99_ms", "ms", false, false, "the same"},
	{"commit_p50_ms", "ms", false, true, "one INSERT of one row of 200 bytes, committed by itself, on a connection of the bench's between the runs"},
	{"commit_p99_ms", "ms", false, true, "the same"},
	{"step_to_step_by_commit", "×", false, true, "step to step by one commit, both p50"},
	{"samples", "", false, true, "runs measured"},
	{"runs_per_s", "1/s", true, false, "runs started a second, a thousand at a time, durable"},
	{"single_starts_per_s", "1/s", true, false, "runs started a second, one a call, by 16 callers"},
	{"first_100_ms_per_step", "ms", false, false, "the first hundred steps of a run, behind its first ten"},
	{"last_100_ms_per_step", "ms", false, false, "the last hundred steps of a run"},
	{"last_100_by_first_100", "×", false, true, "late steps by early steps"},
	{"run_ms_per_step", "ms", false, false, "all steps of a run"},
	{"statements_per_min", "1/min", false, false, "statements that an idle process sends, BEGIN, COMMIT and the like left out (pg_stat_statements)"},
	{"executions_per_min", "1/min", false, false, "statements sent over the pool's connections, BEGIN and COMMIT included"},
	{"round_trips_per_min", "1/min", false, false, "round trips of an idle process on the connections of the pool"},
	{"all_done_s", "s", false, false, "from the kill until all runs have succeeded"},
	{"lost_runs", "", false, true, "runs that have not succeeded when the time was up"},
	{"repeated_bodies", "", false, true, "steps whose body began more than once"},
	{"repeated_transitions", "", false, true, "steps that are recorded as completed more than once"},
	{"killed_at_share", "", false, true, "share of the steps that had begun at the kill"},
	{"wal_bytes_per_step", "B", false, false, "WAL that the server wrote, by a completed step"},
	{"wal_full_page_images", "", false, true, "full-page images among it, in all"},
	{"round_trips_per_step", "", false, false, "round trips on the connections of the pool, by a completed step"},
	{"executions_per_step", "", false, false, "statements sent over the pool's connections, BEGIN and COMMIT included"},
	{"sql_calls_per_step", "", false, false, "statements that the server executed, BEGIN, COMMIT and the like left out, on any connection (pg_stat_statements)"},
	{"disk_bytes_per_step", "B", false, false, "growth of the tables and indexes while the steps are worked on"},
	{"claim_p50_ms", "ms", false, false, "one claiming statement, as the client sees it"},
	{"claim_p99_ms", "ms", false, false, "the same"},
	{"claims", "", false, true, "claiming statements measured"},
	{"empty_steps_per_s", "1/s", true, false, "the same without the ballast, just before"},
	{"empty_claim_p99_ms", "ms", false, false, "the same without the ballast, just before"},
	{"throughput_by_empty", "×", true, true, "throughput with the ballast by that without"},
	{"claim_p99_by_empty", "×", false, true, "claim p99 with the ballast by that without"},
	{"free_steps_per_s", "1/s", true, false, "the same load without a snapshot held"},
	{"held_by_free", "×", true, true, "throughput at the end of the time that the snapshot is held, by that without"},
	{"recovered_per_s", "1/s", true, false, "leases taken back a second, from the expiry to the last one"},
	{"recovery_s", "s", false, false, "from the expiry to the last lease taken back"},
	{"first_recovery_s", "s", false, false, "from the expiry to the first lease taken back"},
	{"before_steps_per_s", "1/s", true, false, "throughput of the other runs before the expiry"},
	{"during_steps_per_s", "1/s", true, false, "throughput of the other runs from the expiry to the last lease taken back"},
	{"during_by_before", "×", true, true, "the one by the other"},
}

var byName = func() map[string]Metric {
	m := map[string]Metric{}
	for _, x := range Metrics {
		m[x.Name] = x
	}
	return m
}()

// Find is the metric of a name; it panics if there is none.
func Find(name string) Metric {
	m, ok := byName[name]
	if !ok {
		panic("no metric is named " + name)
	}
	return m
}
