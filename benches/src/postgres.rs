//! The log on a PostgreSQL server: round trips, bytes and times of the turn, and commits of many callers beside single
//! inserts by hand. The server is that of `ANNALS_POSTGRES`, or one that is started for the run, with `fsync` on.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use annals::store::batch::Batch;
use annals::store::{OpenOptions, SearchOptions, SearchQuery, Store};
use annals_graph::Durability;
use annals_graph::prelude::*;
use annals_postgres::PostgresBackend;
use serde_json::Value;
use tokio_postgres::NoTls;

use self::server::Server;
use crate::append::{Chain, TEXT_BYTES};
use crate::disk::same;
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, ratio, text, timed};
use crate::turns::{self, Chat};
use crate::{Bench, Result, workflows};

#[allow(dead_code, reason = "the tests of the crate use all of it")]
#[path = "../../crates/annals-postgres/tests/it/server.rs"]
mod server;

/// Callers of one process, and connections of the inserts by hand.
const CLIENTS: usize = 50;
/// Turns measured at one length.
const MEASURED: usize = 200;
/// Nodes of the chain whose supersteps are counted.
const NODES: u64 = 11;

type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// Measures the figures of the server, or says why there is none.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let server = match Server::start_synced() {
        Ok(server) => server,
        Err(reason) => {
            eprintln!("annals-bench: PostgreSQL is skipped: {reason}");
            return Ok(());
        }
    };
    round_trips(&server, report)?;
    talk(bench, &server, report)?;
    commits(bench, &server, report)?;
    writers(bench, &server, report)?;
    peers(bench, &server, report)
}

/// Measures searches on the server, or says why there is none.
pub(crate) fn measure_search(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    match Server::start_synced() {
        Ok(server) => searches(bench, &server, report),
        Err(reason) => {
            eprintln!("annals-bench: PostgreSQL is skipped: {reason}");
            Ok(())
        }
    }
}

fn open(server: &Server) -> Result<(String, Arc<PostgresBackend>, Store)> {
    let url = server.empty();
    let backend = Arc::new(PostgresBackend::connect(&url)?);
    let store = Store::with_backend(backend.clone(), OpenOptions::new());
    Ok((url, backend, store))
}

/// Returns the graph of a chain of so many nodes.
fn chain(nodes: u64) -> Result<annals_graph::graph::CompiledGraph<Chat>> {
    let mut graph = StateGraph::<Chat>::new();
    for at in 0..nodes {
        graph = graph.node(format!("node {at}"), |chat: &Chat| Ok(Chat::update().n(chat.n + 1)));
        graph = match at {
            0 => graph.edge(START, "node 0"),
            _ => graph.edge(format!("node {}", at - 1), format!("node {at}")),
        };
    }
    Ok(graph.edge(format!("node {}", nodes - 1), END).compile()?)
}

/// Measures the round trips of a superstep: the difference of a long chain and of one node.
fn round_trips(server: &Server, report: &mut FigureReport) -> Result<()> {
    let (_, backend, store) = open(server)?;
    let mut counts = Vec::new();
    for nodes in [1, NODES] {
        let (graph, thread) = (chain(nodes)?, store.thread(format!("chain of {nodes}"))?);
        // The first runs prepare the statements on each connection.
        for _ in 0..6 {
            graph.invoke(&thread, Chat::update().n(0))?;
        }
        let before = backend.round_trips();
        graph.invoke(&thread, Chat::update().n(0))?;
        counts.push(backend.round_trips() - before);
    }
    report.extra("pg_round_trips_per_turn", counts[0] as f64);
    report.set("pg_round_trips_per_superstep", (counts[1] - counts[0]) as f64 / (NODES - 1) as f64);
    Ok(())
}

/// Measures the turn of a short and of a long conversation, and what each takes on the server.
fn talk(bench: &Bench, server: &Server, report: &mut FigureReport) -> Result<()> {
    let (short, long) = turns::lengths(bench);
    let (url, _, store) = open(server)?;
    let answer = |chat: &Chat| {
        let text = random_text(chat.n.unsigned_abs(), TEXT_BYTES);
        Ok(Chat::update().messages([Message::ai(text)]))
    };
    let graph = StateGraph::<Chat>::new().node("answer", answer).edge(START, "answer").edge("answer", END).compile()?;
    let empty = bytes(&url)?;
    report.extra("pg_bytes_empty", empty);
    let thread = store.thread(turns::THREAD)?;
    let turn = |n: usize| -> Result<f64> {
        let (us, done) = timed(|| Ok(graph.invoke(&thread, Chat::update().n(n as i64))?.is_done()))?;
        if done { Ok(us / 1e3) } else { Err("a turn did not end".into()) }
    };
    let mut done = 0;
    for (turns, label) in [(short, "1k"), (long, "10k")] {
        let (mut costs, wal, begun) = (Vec::new(), wal_bytes(&url)?, done);
        while done < turns {
            costs.push(turn(done)?);
            done += 1;
        }
        report.extra(&format!("pg_wal_bytes_per_turn_{label}"), (wal_bytes(&url)? - wal) / (turns - begun) as f64);
        report.set(&format!("pg_turn_ms_{label}"), median(&costs[costs.len().saturating_sub(MEASURED)..]));
        report.set(&format!("pg_bytes_per_turn_{label}"), bytes(&url)? / turns as f64);
    }
    for (name, size) in relations(&url)? {
        report.extra(&format!("pg_bytes_per_turn_10k {name}"), size / long as f64);
    }
    store.clear_head_cache();
    let state = graph.get_state(&thread)?.values;
    same("messages on the server", state.messages.len(), long)
}

/// Returns a text that does not compress.
fn random_text(seed: u64, len: usize) -> String {
    let mut random = annals::base::IdSource::from_seed(seed);
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        text.push_str(&format!("{:016x}", random.random()));
    }
    text.truncate(len);
    text
}

/// Runs statements on a connection of its own, and returns the rows of the last one as name and number.
fn select(url: &str, before: &str, sql: &str) -> Result<Vec<(String, f64)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(before).await?;
        let rows = client.query(sql, &[]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as f64))).collect()
    })
}

/// Returns the bytes of the write-ahead log so far.
fn wal_bytes(url: &str) -> Result<f64> {
    let rows = select(url, "", "SELECT 'wal', pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")?;
    Ok(rows.first().ok_or("the server shows no position")?.1)
}

/// Returns the size of each table and index of a schema after a vacuum.
fn relations(url: &str) -> Result<Vec<(String, f64)>> {
    select(
        url,
        "VACUUM ANALYZE",
        "SELECT c.relname::text, pg_relation_size(c.oid) FROM pg_class c WHERE c.relkind IN ('r', 'i') \
         AND c.relnamespace = current_schema()::regnamespace AND pg_relation_size(c.oid) > 65536 ORDER BY 2 DESC",
    )
}

/// Returns the size of all tables of a schema with their indexes after a vacuum.
fn bytes(url: &str) -> Result<f64> {
    let rows = select(
        url,
        "VACUUM ANALYZE",
        "SELECT 'all', sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c WHERE c.relkind = 'r' \
         AND c.relnamespace = current_schema()::regnamespace",
    )?;
    Ok(rows.first().ok_or("the server shows no sizes")?.1)
}

/// Measures the commits of callers of one process beside single inserts, each on a connection of its own.
fn commits(bench: &Bench, server: &Server, report: &mut FigureReport) -> Result<()> {
    let (rounds, each) = (bench.runs(7, 2), bench.runs(60, 4));
    let (_, _, store) = open(server)?;
    let mut chains: Vec<Chain> =
        (0..CLIENTS).map(|at| Chain::new(&format!("caller {at}"), at as u64 + 1)).collect::<Result<_>>()?;
    let by_hand = Inserts::open(&server.empty())?;
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| {
            let batches: Vec<Vec<Batch>> = chains.iter_mut().map(|chain| chain.take(each)).collect();
            let start = Instant::now();
            std::thread::scope(|scope| {
                let commit = |batches: &[Batch]| batches.iter().try_for_each(|batch| store.commit(batch));
                let callers: Vec<_> = batches.iter().map(|batches| scope.spawn(move || commit(batches))).collect();
                for caller in callers {
                    caller.join().map_err(|_| "a caller panicked")??;
                }
                Ok::<_, BenchError>(())
            })?;
            Ok((CLIENTS * each) as f64 / start.elapsed().as_secs_f64())
        }),
        Box::new(|| by_hand.round(each)),
    ];
    let rates = interleave(rounds, &mut sides)?;
    drop(sides);
    report.set("pg_commits_per_s_50_clients", ratio(&rates[0], &rates[1]));
    report.extra("pg_commits_per_s_50_callers", median(&rates[0]));
    report.extra("pg_single_inserts_per_s_50_clients", median(&rates[1]));
    Ok(())
}

/// Writers at once, each with a thread of its own.
const WRITERS: usize = 1_000;
const WRITER_STACK_BYTES: usize = 256 << 10;

/// Measures the commits of very many callers of one process, and how long each waits.
fn writers(bench: &Bench, server: &Server, report: &mut FigureReport) -> Result<()> {
    let (_, _, store) = open(server)?;
    let (count, each) = (bench.runs(WRITERS, 100), bench.runs(10, 2));
    let start = Instant::now();
    let costs = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for at in 0..count {
            let (store, mut chain) = (&store, Chain::new(&format!("writer {at}"), at as u64 + 1)?);
            let work = move || -> Result<Vec<f64>> {
                chain.take(each).iter().map(|batch| Ok(timed(|| Ok(store.commit(batch)?))?.0 / 1e3)).collect()
            };
            writers.push(std::thread::Builder::new().stack_size(WRITER_STACK_BYTES).spawn_scoped(scope, work)?);
        }
        let mut costs = Vec::new();
        for writer in writers {
            costs.extend(writer.join().map_err(|_| "a writer panicked")??);
        }
        Ok::<_, BenchError>(costs)
    })?;
    report.extra("pg_1000_writers_commits_per_s", costs.len() as f64 / start.elapsed().as_secs_f64());
    let mut sorted = costs;
    sorted.sort_by(f64::total_cmp);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        let at = ((sorted.len() - 1) as f64 * share) as usize;
        report.extra(&format!("pg_1000_writers_ms_{name}"), sorted[at]);
    }
    Ok(())
}

const PLAIN: &str = "CREATE TABLE plain (id bigserial PRIMARY KEY, thread text NOT NULL, data bytea NOT NULL)";

/// Connections that insert single rows.
struct Inserts {
    runtime: tokio::runtime::Runtime,
    clients: Vec<Arc<(tokio_postgres::Client, tokio_postgres::Statement)>>,
}

impl Inserts {
    fn open(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let clients = runtime.block_on(async {
            let mut clients = Vec::new();
            for at in 0..CLIENTS {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
                tokio::spawn(connection);
                if at == 0 {
                    client.batch_execute(PLAIN).await?;
                }
                let insert = client.prepare("INSERT INTO plain (thread, data) VALUES ($1, $2)").await?;
                clients.push(Arc::new((client, insert)));
            }
            Ok::<_, BenchError>(clients)
        })?;
        Ok(Self { runtime, clients })
    }

    /// Lets every client insert so many rows, each committed; returns rows per second.
    fn round(&self, each: usize) -> Result<f64> {
        let start = Instant::now();
        self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for (at, client) in self.clients.iter().enumerate() {
                let client = Arc::clone(client);
                tasks.push(tokio::spawn(async move {
                    for n in 0..each {
                        let data = text(n as u64, TEXT_BYTES).into_bytes();
                        client.0.execute(&client.1, &[&format!("caller {at}"), &data]).await?;
                    }
                    Ok::<_, tokio_postgres::Error>(())
                }));
            }
            for task in tasks {
                task.await??;
            }
            Ok::<_, BenchError>(())
        })?;
        Ok((CLIENTS * each) as f64 / start.elapsed().as_secs_f64())
    }
}

/// Messages that one batch of the searched conversations puts, a checkpoint each.
const BATCH: usize = 100;
/// The conversations that are searched.
const TALKS: usize = 10;

/// Measures searches for a word that one message of each conversation has, without an index and with it.
fn searches(bench: &Bench, server: &Server, report: &mut FigureReport) -> Result<()> {
    let (url, _, store) = open(server)?;
    let mut chains: Vec<Chain> =
        (0..TALKS).map(|at| Chain::new(&format!("talk {at}"), at as u64 + 1)).collect::<Result<_>>()?;
    let mut messages = 0;
    for (count, label) in [(bench.runs(10_000, 1_000), "10k"), (bench.runs(100_000, 2_000), "100k")] {
        while messages < count {
            for chain in &mut chains {
                let mut batches = chain.take(BATCH).into_iter();
                let mut first = batches.next().ok_or("a chain goes on")?;
                first.checkpoints.extend(batches.flat_map(|batch| batch.checkpoints));
                store.commit(&first)?;
            }
            messages += BATCH * TALKS;
        }
        bytes(&url)?;
        if label == "10k" {
            report.extra("pg_search_scan_ms_10k", search(&store, messages)?);
        }
        let (us, ()) = timed(|| Ok(store.enable_search(SearchOptions::new())?))?;
        report.extra(&format!("pg_index_s_{label}"), us / 1e6);
        bytes(&url)?;
        report.set(&format!("pg_search_ms_{label}"), search(&store, messages)?);
    }
    let of_index = |(name, size): (String, f64)| name.starts_with("search_").then_some(size);
    let index: f64 = relations(&url)?.into_iter().filter_map(of_index).sum();
    report.extra("pg_index_bytes_per_message", index / messages as f64);
    Ok(())
}

/// Returns the median of the milliseconds of some searches, each for a word of one message at least of each
/// conversation.
fn search(store: &Store, messages: usize) -> Result<f64> {
    let mut costs = Vec::new();
    for at in 1..=9 {
        let query = SearchQuery::new(format!("{}:", messages / TALKS / 10 * at)).limit(TALKS);
        let (us, page) = timed(|| Ok(store.search(&query)?))?;
        same("the hits of a page", page.hits.len(), TALKS)?;
        costs.push(us / 1e3);
    }
    Ok(median(&costs))
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/postgres_peers.py");
/// The exit code of the script when a package is missing.
const MISSING: i32 = 3;

/// Lets LangGraph's saver and DBOS do the same on the server, if the Python has them.
fn peers(bench: &Bench, server: &Server, report: &mut FigureReport) -> Result<()> {
    let (turns, _) = turns::lengths(bench);
    let runs = bench.runs(200, 10);
    server.run("DROP DATABASE IF EXISTS dbos");
    server.run("CREATE DATABASE dbos");
    let mut command = Command::new(&bench.python);
    command.arg(SCRIPT).args(["--url", &server.empty(), "--dbos", &server.url_of_database("dbos")]);
    command.args(["--turns", &turns.to_string(), "--runs", &runs.to_string()]);
    let output = command.output();
    let skipped = match &output {
        Err(error) => Some(format!("{} does not run: {error}", bench.python)),
        Ok(output) if output.status.code() == Some(MISSING) => {
            Some(String::from_utf8_lossy(&output.stderr).into_owned())
        }
        Ok(_) => None,
    };
    if let Some(reason) = skipped {
        eprintln!("annals-bench: the peers on PostgreSQL are skipped: {}", reason.trim());
        return Ok(());
    }
    let output = output?;
    if !output.status.success() {
        return Err(format!("{SCRIPT}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    let peer: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| peer[name].as_f64().ok_or(format!("the script shows no {name}"));
    let ours = |name: &str| report.get(name).ok_or(format!("{name} was not measured"));
    let turn = number("turn_ms")? / ours("pg_turn_ms_1k")?;
    let bytes = number("turn_bytes")? / ours("pg_bytes_per_turn_1k")?;
    let per_second = workflows_per_s(server, runs)?;
    let ratio = per_second / number("workflows_per_s")?;
    report.set("langgraph_postgres_turn_ratio_1k", turn);
    report.set("langgraph_postgres_bytes_ratio", bytes);
    report.set("pg_workflows_per_s_ratio_dbos", ratio);
    report.extra("pg_workflows_per_s", per_second);
    report.postgres = peer;
    Ok(())
}

/// Returns the workflows of five tasks a second, one after another.
fn workflows_per_s(server: &Server, runs: usize) -> Result<f64> {
    let ((_, _, store), flow) = (open(server)?, workflows::five_tasks()?);
    let mut costs = Vec::new();
    for n in 0..runs + 5 {
        let thread = store.thread(format!("order-{n}"))?;
        let (us, done) = timed(|| Ok(flow.run(&thread).durability(Durability::Sync).invoke(n as i64)?))?;
        same("the result of a workflow", done.value().copied(), Some(n as i64 + 5))?;
        costs.push(us);
    }
    Ok(1e6 / median(&costs[5..]))
}
