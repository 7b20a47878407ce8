//! Lists the figures with their targets, and formats the results.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::{
    Bench, Result, agents, append, channels, command, disk, group, history, imports, inside, inspect, leases, messages,
    pages, peers, processes, runtime, scale, search, supersteps, turns, workflows, writes,
};

/// A figure, in the order of the list.
struct Figure {
    name: &'static str,
    group: &'static str,
    target: FigureTarget,
    /// The two sides of a ratio, in a line below the table.
    about: &'static str,
}

/// The target of a figure.
enum FigureTarget {
    /// It is shown, no more.
    None,
    AtLeast(f64),
    AtMost(f64),
    /// At most what other figures give.
    AtMostOf(fn(&FigureReport) -> Option<f64>),
    /// At least what other figures give.
    AtLeastOf(fn(&FigureReport) -> Option<f64>),
}

const fn figure(name: &'static str, group: &'static str, target: FigureTarget) -> Figure {
    Figure { name, group, target, about: "" }
}

impl Figure {
    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

const FIGURES: [Figure; 163] = [
    figure("append_full_ratio", "append", FigureTarget::AtLeast(0.8)),
    figure("append_normal_ratio", "append", FigureTarget::AtLeast(0.7)),
    figure("append_normal_vs_one_row", "append", FigureTarget::None),
    figure("group_commit_ratio_threads", "group", FigureTarget::AtLeast(2.0)),
    figure("group_commit_ratio_outstanding", "group", FigureTarget::AtLeast(5.0)),
    figure("group_size_mean", "group", FigureTarget::None),
    figure("turns_per_s_ratio_8_threads", "group", FigureTarget::AtLeast(1.8)).about(
        "turns per second of 8 conversations on 8 threads over those of one, in one store at FULL, every superstep synced",
    ),
    figure("commit_wait_max_ms_32_processes", "processes", FigureTarget::AtMost(500.0))
        .about("the longest of 6,400 commits of 32 processes on one file, at FULL, each process as fast as it can"),
    figure("commit_wait_max_ms_32_processes_sqlite", "processes", FigureTarget::None)
        .about("the same in the same run by hand: one row for each commit, with the busy handler of SQLite"),
    figure("wal_mb_peak_with_reader", "processes", FigureTarget::AtMost(64.0))
        .about("the largest size of the write-ahead log in MB while a slow reader visits a list and another thread commits"),
    figure("fsync_us", "disk", FigureTarget::None),
    figure("bytes_per_turn_1k", "turns", FigureTarget::None),
    figure("bytes_per_turn_10k", "turns", FigureTarget::AtMostOf(bytes_target)),
    figure("turn_us_1k", "turns", FigureTarget::AtMost(200.0)),
    figure("turn_us_10k", "turns", FigureTarget::AtMostOf(|report| Some(1.25 * report.get("turn_us_1k")?))),
    figure("cold_turn_us_10k", "turns", FigureTarget::AtMost(20_000.0)),
    figure("turn_full_us_1k", "turns", FigureTarget::AtMostOf(full_target)),
    figure("turn_raw_ratio", "turns", FigureTarget::AtMost(1.8)).about(
        "time of a turn at 1,000 turns over that of inserting its rows by hand in its two transactions, both at NORMAL",
    ),
    figure("lease_overhead_pct", "lease", FigureTarget::AtMost(5.0))
        .about("the time that a lease adds to a turn at 1,000 turns, in percent of a turn without one, both at NORMAL"),
    figure("lease_overhead_full_pct", "lease", FigureTarget::AtMost(5.0)).about("the same with a sync of each commit, the default"),
    figure("enqueue_us", "workflows", FigureTarget::None).about("one input into a queue, without types, at NORMAL"),
    figure("claim_us_1k_queued", "workflows", FigureTarget::None),
    figure("claim_us_100k_queued", "workflows", FigureTarget::AtMostOf(|report| Some(2.0 * report.get("claim_us_1k_queued")?)))
        .about("finding the first of 100,000 queued runs and claiming it, at NORMAL; the one before is of 1,000"),
    figure("worker_wake_ms", "workflows", FigureTarget::AtMost(20.0))
        .about("from the commit of an input to the first line of its run in the worker of another process, at FULL"),
    figure("worker_idle_cpu_pct", "workflows", FigureTarget::AtMost(0.2))
        .about("of a core, by a worker in a process of its own that has nothing to do"),
    figure("worker_idle_wakeups_per_s", "workflows", FigureTarget::AtMost(2.0))
        .about("of all its threads; of Linux, as the one before"),
    figure("workflows_per_s_8_threads", "workflows", FigureTarget::None)
        .about("queued workflows of five empty tasks, each task committed at FULL, by one worker with eight threads"),
    figure("recovery_ms_1000_crashed", "workflows", FigureTarget::None)
        .about("from the start of a worker with eight threads to the end of 1,000 runs killed in their third of five tasks, at FULL"),
    figure("workflows_per_s_ratio_dbos", "dbos", FigureTarget::AtLeast(30.0)),
    figure("workflow_bytes_ratio_dbos", "dbos", FigureTarget::AtLeast(1.0))
        .about("workflows of five empty steps one after another: DBOS on its SQLite over annals at FULL, time and bytes"),
    figure("get_state_us_10k", "history", FigureTarget::AtMost(15_000.0)),
    figure("get_state_raw_ratio", "history", FigureTarget::AtMost(2.0)).about(
        "time of `get_state` of 10,000 messages, decoded and verified, over that of copying the same rows out by hand",
    ),
    figure("read_tail_50_us_10k", "history", FigureTarget::AtMost(500.0)),
    figure("append_us_10k", "history", FigureTarget::None),
    figure("fork_us_10k", "history", FigureTarget::AtMostOf(|report| Some(2.5 * report.get("append_us_10k")?))),
    figure("append_message_by_hand_us_10k", "writes", FigureTarget::None),
    figure(
        "append_message_us_10k",
        "writes",
        FigureTarget::AtMostOf(|report| Some(1.2 * report.get("append_message_by_hand_us_10k")?)),
    )
    .about("a message appended without a graph to 10,000, at NORMAL; the one before is of the same rows by hand"),
    figure("append_message_by_hand_us_100k", "writes", FigureTarget::None),
    figure("append_message_us_100k", "writes", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("append_message_us_10k")?)))
        .about("appended to 100,000"),
    figure("undo_us", "writes", FigureTarget::AtMostOf(|report| Some(3.0 * report.get("append_message_us_10k")?))),
    figure("undo_us_100k", "writes", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("undo_us")?))),
    figure("first_append_us_10k", "writes", FigureTarget::None).about("by a handle that has not read the thread"),
    figure("first_append_us_100k", "writes", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("first_append_us_10k")?))),
    figure("diff_adjacent_us_10k", "inspect", FigureTarget::AtMost(1_000.0)),
    figure("blame_item_us_10k", "inspect", FigureTarget::AtMost(500.0)),
    figure("message_by_id_us_10k", "inspect", FigureTarget::AtMost(100.0)),
    figure("history_20_us_10k", "inspect", FigureTarget::AtMost(2_000.0)),
    figure("first_appearance_ms_10k", "inspect", FigureTarget::AtMost(50.0))
        .about("the checkpoint at which a text of one of 10,000 messages appeared, without an index of texts"),
    figure("sql_join_ms_10k", "inspect", FigureTarget::AtMost(300.0))
        .about("`v_messages` of 10,000 messages joined with `v_checkpoints`, with the node of each message"),
    figure("diff_adjacent_us_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("diff_adjacent_us_10k")?))),
    figure("blame_item_us_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("blame_item_us_10k")?))),
    figure("message_by_id_us_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("message_by_id_us_10k")?))),
    figure("history_20_us_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("history_20_us_10k")?))),
    figure("first_appearance_ms_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(12.0 * report.get("first_appearance_ms_10k")?)))
        .about("each text is read once, so ten times the messages take ten times as long"),
    figure("sql_join_ms_100k", "inspect_long", FigureTarget::AtMostOf(|report| Some(12.0 * report.get("sql_join_ms_10k")?))),
    figure("prune_us_per_checkpoint", "inspect", FigureTarget::None)
        .about("pruning a history of 10,000 turns down to its last 100 checkpoints, with the pauses for other writers"),
    figure("cli_process_ms", "command", FigureTarget::None).about("a process that does nothing (`true`), from its start to its end"),
    figure("cli_start_ms", "command", FigureTarget::AtMost(10.0)).about("`annals --version`, as a whole process"),
    figure("cli_threads_ms_100k", "command", FigureTarget::AtMost(50.0))
        .about("`annals threads` on a file with 100,000 threads, one of them with 100,000 checkpoints, as a whole process"),
    figure("cli_log_ms_100k", "command", FigureTarget::AtMost(50.0))
        .about("the first 50 lines of `annals log` on the thread with 100,000 checkpoints, as a whole process"),
    figure("cli_threads_head_ms_100k", "command", FigureTarget::AtMost(50.0))
        .about("`annals threads -n 0` on the same file until a reader has ten lines and closes the pipe; the next one is `annals log -n 0`"),
    figure("cli_log_head_ms_100k", "command", FigureTarget::AtMost(50.0)),
    figure("cli_stats_day_ms_100k", "command", FigureTarget::AtMost(1_000.0))
        .about("`annals stats --by day` on the same file, which counts its newest 5,000 checkpoints"),
    figure("cli_import_s_100k", "command", FigureTarget::AtMost(60.0))
        .about("`annals import` of 100,000 conversations of four messages in one file, into a new store"),
    figure("import_mb_per_s_codex", "imports", FigureTarget::AtLeast(60.0)).about(
        "`annals import` of 500 sessions of a megabyte each into a new store, as a whole process; the next one is of another program",
    ),
    figure("import_mb_per_s_claude_code", "imports", FigureTarget::AtLeast(60.0)),
    figure("import_first_page_s_1gb", "imports", FigureTarget::AtMost(30.0))
        .about("the import of both, 1,000 sessions, and the start of the server until its first page has come"),
    figure("threads_page_us", "scale", FigureTarget::None),
    figure("threads_page_us_100k", "scale", FigureTarget::AtMostOf(|report| Some(3.0 * report.get("threads_page_us")?))).about(
        "a page of 50 threads of a file with 100,000 threads; the one before is of a file with 200",
    ),
    figure("list_50_threads_us_1k", "scale", FigureTarget::None),
    figure(
        "list_50_threads_us_100k",
        "scale",
        FigureTarget::AtMostOf(|report| Some(5_000.0_f64.min(2.0 * report.get("list_50_threads_us_1k")?))),
    )
    .about("the 50 threads of 100,000 with the newest activity, with their facts and status; the one before is of 1,000"),
    figure("delete_thread_us", "scale", FigureTarget::None),
    figure(
        "delete_thread_us_100k_threads",
        "scale",
        FigureTarget::AtMostOf(|report| Some(3.0 * report.get("delete_thread_us")?)),
    )
    .about("deleting and erasing one of 100,000 threads; the one before is of a file with 200"),
    figure("delete_thread_ms_100k_checkpoints", "scale", FigureTarget::AtMost(50.0))
        .about("the call that deletes a thread of 100,000 checkpoints; its rows are reclaimed afterwards"),
    figure("tail_50_us_head_100k", "scale", FigureTarget::None),
    figure("tail_50_us_middle_100k", "scale", FigureTarget::AtMostOf(tail_target)),
    figure("tail_50_us_forks_10k", "scale", FigureTarget::AtMostOf(tail_target))
        .about("the last 50 items below 10,000 forks of forks, every second of which added an item"),
    figure("search_us_1m", "search", FigureTarget::AtMost(50_000.0)).about(
        "the 95th percentile of 1,000 searches for one to three words, drawn as often as in the 1,000,000 short messages",
    ),
    figure("mcp_search_ms", "search", FigureTarget::AtMost(20.0))
        .about("the same searches by the tool of `annals mcp`, from the line of a request to that of its response"),
    figure("page_first_byte_ms_threads", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_threads", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_thread", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_thread", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_talk", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_talk", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_state", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_state", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_step", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_step", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_diff", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_diff", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_runs", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_runs", "pages", FigureTarget::AtMost(100.0)),
    figure("page_first_byte_ms_stats", "pages", FigureTarget::AtMost(20.0)),
    figure("page_ms_stats", "pages", FigureTarget::AtMost(100.0)).about(
        "a screen of `annals serve` over a socket, from the connect to the first byte and to the end of the response, on a store of \
         1,000,000 checkpoints",
    ),
    figure("map_put_us_1k", "channels", FigureTarget::None),
    figure("map_put_us_10k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("map_put_us_1k")?))),
    figure("map_put_us_100k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("map_put_us_1k")?))),
    figure("map_put_bytes_1k", "channels", FigureTarget::None),
    figure("map_put_bytes_10k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("map_put_bytes_1k")?))),
    figure("map_put_bytes_100k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("map_put_bytes_1k")?))),
    figure("text_append_us_1k", "channels", FigureTarget::None),
    figure("text_append_us_10k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("text_append_us_1k")?))),
    figure("text_append_us_100k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("text_append_us_1k")?))),
    figure("text_append_bytes_1k", "channels", FigureTarget::None),
    figure("text_append_bytes_10k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("text_append_bytes_1k")?))),
    figure("text_append_bytes_100k", "channels", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("text_append_bytes_1k")?))),
    figure("map_reduced_us_1k", "channels", FigureTarget::None),
    figure("map_reduced_us_10k", "channels", FigureTarget::None),
    figure("map_reduced_us_100k", "channels", FigureTarget::None),
    figure("map_reduced_bytes_1k", "channels", FigureTarget::None),
    figure("map_reduced_bytes_10k", "channels", FigureTarget::None),
    figure("map_reduced_bytes_100k", "channels", FigureTarget::None),
    figure("text_reduced_us_1k", "channels", FigureTarget::None),
    figure("text_reduced_us_10k", "channels", FigureTarget::None),
    figure("text_reduced_us_100k", "channels", FigureTarget::None),
    figure("text_reduced_bytes_1k", "channels", FigureTarget::None),
    figure("text_reduced_bytes_10k", "channels", FigureTarget::None),
    figure("text_reduced_bytes_100k", "channels", FigureTarget::None),
    figure("inside_turn_us_1k", "inside", FigureTarget::None),
    figure("inside_turn_us_10k", "inside", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("inside_turn_us_1k")?))),
    figure("inside_bytes_per_turn_1k", "inside", FigureTarget::None),
    figure(
        "inside_bytes_per_turn_10k",
        "inside",
        FigureTarget::AtMostOf(|report| Some(1.10 * report.get("inside_bytes_per_turn_1k")?)),
    ),
    figure("agent_turn_us", "agents", FigureTarget::None)
        .about("a turn of an agent with a scripted model and one tool, after 20 turns, with a sync of each commit at NORMAL"),
    figure("agent_turn_ratio", "agents", FigureTarget::AtMost(1.15)).about("the same over a graph of the same nodes by hand"),
    figure("superstep_ns", "supersteps", FigureTarget::AtMost(1_500.0)),
    figure("superstep_store_us", "supersteps", FigureTarget::AtMost(15.0)),
    figure("superstep_parallel_us", "runtime", FigureTarget::AtMost(150.0)),
    figure("stream_overhead_pct", "runtime", FigureTarget::AtMost(30.0)),
    figure("async_chain_ns", "runtime", FigureTarget::None),
    figure(
        "parallel_speedup",
        "runtime",
        FigureTarget::AtLeastOf(|report| Some(0.9 * report.get("parallel_speedup_threads")?)),
    ),
    figure("parallel_speedup_threads", "runtime", FigureTarget::None),
    figure("superstep_state_1mb_allocs_ratio", "runtime", FigureTarget::AtMost(1.2)),
    figure("superstep_alloc_bytes", "runtime", FigureTarget::AtMost(6_500.0)),
    figure("add_messages_ns_1k", "messages", FigureTarget::None),
    figure("add_messages_ns_10k", "messages", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("add_messages_ns_1k")?))),
    figure("load_10k_messages_ms", "messages", FigureTarget::AtMostOf(load_target)),
    figure("trim_10k_ms", "messages", FigureTarget::None),
    figure("buffer_string_10k_ms", "messages", FigureTarget::None),
    figure("peak_rss_mb_10k", "rss", FigureTarget::None),
    figure("power_cuts_run", "reliability", FigureTarget::None)
        .about("counts of the last full runs of annals-sim and mutants, from docs/reliability.json; they are not measured here"),
    figure("power_cuts_lost", "reliability", FigureTarget::AtMost(0.0)),
    figure("pg_round_trips_per_superstep", "postgres", FigureTarget::AtMost(1.0)),
    figure("pg_bytes_per_turn_1k", "postgres", FigureTarget::AtMostOf(pg_bytes_target_1k))
        .about("the tables and indexes of a conversation on a PostgreSQL server after a vacuum, with texts that do not compress"),
    figure("pg_bytes_per_turn_10k", "postgres", FigureTarget::AtMostOf(pg_bytes_target_10k)),
    figure("pg_turn_ms_1k", "postgres", FigureTarget::None),
    figure("pg_turn_ms_10k", "postgres", FigureTarget::AtMostOf(|report| Some(1.5 * report.get("pg_turn_ms_1k")?))),
    figure("pg_commits_per_s_50_clients", "postgres", FigureTarget::AtLeast(0.6))
        .about("supersteps a second of 50 callers of one process over single inserts of 50 connections by hand"),
    figure("pg_search_ms_10k", "postgres_search", FigureTarget::None),
    figure("pg_search_ms_100k", "postgres_search", FigureTarget::None)
        .about("a search with the index for a word of ten of the messages on a PostgreSQL server"),
    figure("langgraph_postgres_turn_ratio_1k", "postgres", FigureTarget::AtLeast(20.0)),
    figure("langgraph_postgres_bytes_ratio", "postgres", FigureTarget::AtLeast(100.0)),
    figure("pg_workflows_per_s_ratio_dbos", "postgres", FigureTarget::AtLeast(3.0)),
    figure("faults_run", "reliability", FigureTarget::None),
    figure("faults_lied", "reliability", FigureTarget::AtMost(0.0)),
    figure("kills_run", "reliability", FigureTarget::None),
    figure("kills_lost", "reliability", FigureTarget::AtMost(0.0)),
    figure("flips_run", "reliability", FigureTarget::None),
    figure("flips_wrong", "reliability", FigureTarget::AtMost(0.0)),
    figure("forgeries_run", "reliability", FigureTarget::None),
    figure("forgeries_missed", "reliability", FigureTarget::AtMost(0.0)),
    figure("mutants_run", "reliability", FigureTarget::None),
    figure("mutants_open", "reliability", FigureTarget::AtMost(0.0)),
];

/// Repeats the counts of the last full run below SQLite.
fn reliability(_: &Bench, report: &mut FigureReport) -> Result<()> {
    let results: Value = serde_json::from_str(include_str!("../../docs/reliability.json"))?;
    for figure in FIGURES.iter().filter(|figure| figure.group == "reliability") {
        let count = results[figure.name].as_f64();
        report.set(figure.name, count.ok_or_else(|| format!("the results hold no {}", figure.name))?);
    }
    Ok(())
}

fn bytes_target(report: &FigureReport) -> Option<f64> {
    Some((1.10 * report.get("bytes_per_turn_1k")?).min(1_500.0))
}

/// Two and a half times the bytes of the same turn in a file: those that were measured, or the last ones.
fn pg_bytes_target_1k(report: &FigureReport) -> Option<f64> {
    Some(2.5 * report.get("bytes_per_turn_1k").unwrap_or(1_339.0))
}

fn pg_bytes_target_10k(report: &FigureReport) -> Option<f64> {
    Some(2.5 * report.get("bytes_per_turn_10k").unwrap_or(1_195.0))
}

fn tail_target(report: &FigureReport) -> Option<f64> {
    Some(3.0 * report.get("tail_50_us_head_100k")?)
}

fn full_target(report: &FigureReport) -> Option<f64> {
    Some(2.5 * report.get("fsync_us")? + report.get("turn_us_1k")?)
}

/// A tenth of what LangChain needs to make the messages, though ours reads and parses the file as well.
fn load_target(report: &FigureReport) -> Option<f64> {
    Some(report.langchain.get("messages_from_dict_ms")?.as_f64()? / 10.0)
}

/// The measured values.
#[derive(Default)]
pub(crate) struct FigureReport {
    figures: Vec<(String, f64)>,
    extras: Vec<(String, f64)>,
    /// The measurements of LangGraph.
    pub(crate) langgraph: Value,
    /// The measurements of LangChain's loading of messages.
    pub(crate) langchain: Value,
    /// The measurements of salamander-db, and ours of the same work; null without its feature.
    pub(crate) salamander: Value,
    /// The measurements of DBOS, and ours of the same workflow; null without its feature.
    pub(crate) dbos: Value,
    /// The measurements of LangGraph's Postgres saver and of DBOS on one server; null without its feature.
    pub(crate) postgres: Value,
    machine: Map<String, Value>,
}

impl FigureReport {
    /// Notes a figure of the list; a later value replaces an earlier one.
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        debug_assert!(FIGURES.iter().any(|figure| figure.name == name), "{name}");
        self.figures.retain(|(old, _)| old != name);
        self.figures.push((name.into(), value));
    }

    /// Notes a number beside the list, by which a figure can be understood.
    pub(crate) fn extra(&mut self, name: &str, value: f64) {
        self.extras.push((name.into(), value));
    }

    /// Returns a figure that was measured.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(noted, _)| noted == name).map(|(_, value)| *value)
    }

    /// Returns the target of a figure as a sign and a limit, and whether the figure meets it.
    fn judge(&self, figure: &Figure) -> (Option<(&'static str, f64)>, Option<bool>) {
        let value = self.get(figure.name);
        let (sign, limit) = match &figure.target {
            FigureTarget::None => return (None, None),
            FigureTarget::AtLeast(limit) => (">=", Some(*limit)),
            FigureTarget::AtMost(limit) => ("<=", Some(*limit)),
            FigureTarget::AtMostOf(limit) => ("<=", limit(self)),
            FigureTarget::AtLeastOf(limit) => (">=", limit(self)),
        };
        let Some(limit) = limit else { return (None, None) };
        let passes = value.map(|value| if sign == ">=" { value >= limit } else { value <= limit });
        (Some((sign, limit)), passes)
    }

    /// Returns one JSON object: every figure that was measured by its name, then targets and details.
    pub(crate) fn to_json(&self) -> String {
        let mut object = Map::new();
        let mut targets = Map::new();
        for figure in &FIGURES {
            let Some(value) = self.get(figure.name) else { continue };
            object.insert(figure.name.into(), number(value));
            if let (Some((sign, limit)), Some(passes)) = self.judge(figure) {
                targets.insert(figure.name.into(), json!({ "must": sign, "limit": number(limit), "pass": passes }));
            }
        }
        object.insert("langgraph".into(), self.langgraph.clone());
        object.insert("langchain".into(), self.langchain.clone());
        if !self.salamander.is_null() {
            object.insert("salamander".into(), self.salamander.clone());
        }
        if !self.dbos.is_null() {
            object.insert("dbos".into(), self.dbos.clone());
        }
        if !self.postgres.is_null() {
            object.insert("postgres".into(), self.postgres.clone());
        }
        object.insert("targets".into(), Value::Object(targets));
        let details = self.extras.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        object.insert("details".into(), Value::Object(details));
        object.insert("machine".into(), Value::Object(self.machine.clone()));
        Value::Object(object).to_string()
    }

    /// Returns a table for people, with the rows that miss their target.
    pub(crate) fn to_table(&self) -> String {
        let mut table = format!("{:<34} {:>12}   {:<14} {}\n", "figure", "value", "target", "verdict");
        for figure in &FIGURES {
            let Some(value) = self.get(figure.name) else { continue };
            let (limit, passes) = self.judge(figure);
            let limit = limit.map(|(sign, limit)| format!("{sign} {}", shown(limit))).unwrap_or_default();
            let verdict = passes.map_or("", |passes| if passes { "pass" } else { "MISS" });
            _ = writeln!(table, "{:<34} {:>12}   {limit:<14} {verdict}", figure.name, shown(value));
        }
        for figure in FIGURES.iter().filter(|figure| !figure.about.is_empty() && self.get(figure.name).is_some()) {
            _ = writeln!(table, "{}: {}", figure.name, figure.about);
        }
        for (name, value) in &self.extras {
            _ = writeln!(table, "  {name:<32} {:>12}", shown(*value));
        }
        for (title, peer) in [
            ("langgraph (SqliteSaver, FULL)", &self.langgraph),
            ("langchain-core", &self.langchain),
            ("salamander-db (append with fsync, open and whole state of 10,000 events)", &self.salamander),
            ("dbos (five empty steps, SQLite)", &self.dbos),
            ("langgraph (PostgresSaver) and dbos (five empty steps) on the same server", &self.postgres),
        ] {
            let Value::Object(peer) = peer else { continue };
            _ = writeln!(table, "{title}");
            for (name, value) in peer {
                let value = value.as_f64().map_or_else(|| value.to_string(), shown);
                _ = writeln!(table, "  {name:<32} {value:>12}");
            }
        }
        for (name, value) in &self.machine {
            _ = writeln!(table, "{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        table
    }
}

/// Rounds to the precision of a measurement.
fn number(value: f64) -> Value {
    let digits = if value.abs() >= 100.0 { 10.0 } else { 1_000.0 };
    json!((value * digits).round() / digits)
}

fn shown(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A group of figures that are measured together.
type FigureGroup = (&'static str, fn(&Bench, &mut FigureReport) -> Result<()>);

/// Measures the requested figures.
pub(crate) fn measure(bench: &Bench) -> Result<FigureReport> {
    let groups: &[FigureGroup] = &[
        ("disk", |bench, report| {
            report.set("fsync_us", disk::fsync_us(bench)?);
            Ok(())
        }),
        ("append", append::measure),
        ("group", group::measure),
        ("processes", processes::measure),
        ("turns", turns::measure),
        ("lease", leases::measure),
        ("workflows", workflows::measure),
        ("agents", agents::measure),
        ("history", history::measure),
        ("writes", writes::measure),
        ("inspect", inspect::measure),
        ("inspect_long", inspect::measure_long),
        ("command", command::measure),
        ("imports", imports::measure),
        ("scale", scale::measure),
        ("search", search::measure),
        ("pages", pages::measure),
        ("channels", channels::measure),
        ("inside", inside::measure),
        ("supersteps", supersteps::measure),
        ("runtime", runtime::measure),
        ("messages", messages::measure),
        ("rss", turns::rss),
        ("reliability", reliability),
        ("langgraph", peers::measure),
        #[cfg(feature = "salamander")]
        ("salamander", crate::salamander::measure),
        #[cfg(feature = "dbos")]
        ("dbos", crate::dbos::measure),
        #[cfg(feature = "postgres")]
        ("postgres", crate::postgres::measure),
        #[cfg(feature = "postgres")]
        ("postgres_search", crate::postgres::measure_search),
    ];
    let only = match bench.only.as_deref() {
        None => None,
        Some(name) => {
            let group = FIGURES.iter().find(|figure| figure.name == name).map_or(name, |figure| figure.group);
            let known = groups.iter().find(|(known, _)| *known == group);
            Some(known.ok_or(format!("{name:?} is neither a figure nor a group of figures"))?.0)
        }
    };
    let mut report = FigureReport { machine: machine(bench), ..FigureReport::default() };
    for &(name, measure) in groups {
        if only.is_none_or(|only| only == name) {
            eprintln!("annals-bench: {name}");
            measure(bench, &mut report)?;
        }
    }
    Ok(report)
}

fn machine(bench: &Bench) -> Map<String, Value> {
    let mut machine = Map::new();
    let kind = disk::file_system(&bench.dir);
    if kind == "tmpfs" {
        eprintln!(
            "annals-bench: {} is on tmpfs: nothing is synced there; choose another with --dir",
            bench.dir.display()
        );
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    machine.insert("cores".into(), json!(std::thread::available_parallelism().map_or(0, usize::from)));
    machine.insert("load".into(), json!(load.split(' ').next().and_then(|load| load.parse::<f64>().ok())));
    machine.insert("file_system".into(), json!(kind));
    machine.insert("sqlite".into(), json!(rusqlite::version()));
    machine.insert("quick".into(), json!(bench.quick));
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_and_losing_rows_are_shown() {
        let mut report = FigureReport::default();
        report.set("append_full_ratio", 0.5);
        report.set("turn_us_1k", 100.0);
        report.set("turn_us_10k", 125.0);
        report.set("turn_raw_ratio", 1.9);
        let table = report.to_table();
        assert!(table.lines().any(|line| line.starts_with("turn_raw_ratio") && line.ends_with("MISS")), "{table}");
        assert!(table.contains("turn_raw_ratio: time of a turn"), "{table}");
        assert!(!table.contains("get_state_raw_ratio"), "{table}");
        assert!(table.lines().any(|line| line.starts_with("append_full_ratio") && line.ends_with("MISS")), "{table}");
        assert!(table.lines().any(|line| line.starts_with("turn_us_10k") && line.ends_with("pass")), "{table}");
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["targets"]["append_full_ratio"]["pass"], json!(false));
        assert_eq!(json["turn_us_10k"], json!(125.0));
        assert!(json.get("superstep_ns").is_none(), "what was not measured is not shown");
    }
}
