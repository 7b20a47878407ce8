//! PgBouncer in transaction mode, before a server without other clients: it lends each transaction the next connection
//! to the server, so that what one leaves in a session would be missing in the next one, or in its way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use annals::store::StoreError;
use annals::store::conformance;
use annals::store::log::LogExt;
use annals_graph::graph::Entrypoint;
use annals_graph::task::RunControl;
use annals_graph::{QueueLimit, Worker};
use annals_postgres::PostgresBackend;

use super::server::{Server, checked, is_required, kill, variable};
use super::{Test, calls, faults, suite};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("pooler::log".into(), Box::new(|server| share_of_the_suite(server, &OF_THE_LOG))),
        ("pooler::runs".into(), Box::new(|server| share_of_the_suite(server, &OF_RUNS))),
        ("pooler::following".into(), Box::new(|server| share_of_the_suite(server, &FOLLOWING))),
        ("pooler::calls".into(), Box::new(round_trips)),
        ("pooler::one_connection".into(), Box::new(one_connection)),
        ("pooler::race_of_processes".into(), Box::new(race_of_processes)),
        ("pooler::workers".into(), Box::new(workers)),
        ("pooler::cut_connections".into(), Box::new(cut_connections)),
        ("pooler::options".into(), Box::new(options)),
    ]
}

/// The port that names the socket of the next pooler.
static PORTS: AtomicU16 = AtomicU16::new(6432);

/// The pooler drops the options of startup packets in silence; without this it refuses them.
const DROPS_OPTIONS: &str = "ignore_startup_parameters = options";

/// A pooler before a server. It ends when this is dropped.
struct Pooler {
    /// The server by way of the pooler.
    pooled: Server,
    pid: PathBuf,
}

impl Pooler {
    /// Starts a pooler with so many connections to the server behind all poolers. Without the program or that server
    /// the test says so and ends.
    fn start(beside: &Server, connections: usize, more: &str) -> Option<Self> {
        let server = beside.behind_poolers();
        if server.is_none() {
            println!("SKIPPED: a pooler stands before a server that the tests have started");
        }
        Self::before(server?, connections, more)
    }

    /// Starts a pooler before a server that was started here.
    fn before(server: &Server, connections: usize, more: &str) -> Option<Self> {
        let Some(program) = program() else {
            assert!(!is_required(), "there is no pgbouncer; Debian's package is `pgbouncer`");
            println!("SKIPPED: there is no pgbouncer");
            return None;
        };
        let port = PORTS.fetch_add(1, Ordering::Relaxed);
        let folder = server.socket().expect("it was started").parent().expect("a folder").to_path_buf();
        let own = |kind: &str| folder.join(format!("pooler-{port}.{kind}"));
        let (shown, file, pid) = (folder.display(), own("ini"), own("pid"));
        let text = format!(
            "[databases]\n* = host={shown} user=postgres\n[pgbouncer]\nunix_socket_dir = {shown}\nlisten_port = {port}\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\nserver_round_robin = 1\n\
             max_client_conn = 400\nlogfile = {}\npidfile = {}\n{more}\n",
            own("log").display(),
            pid.display()
        );
        std::fs::write(&file, text).expect("the settings are written");
        let mut command: Command = server.command(program.to_str().expect("a path")).expect("it was started");
        checked(command.arg("-d").arg(&file)).expect("the pooler starts");
        let pooled = Server::at(format!("postgres://postgres@localhost:{port}/postgres?host={shown}"));
        let pooler = Self { pooled, pid };
        // It is reached when it answers.
        pooler.pooled.run("SELECT 1");
        open_all(&pooler.pooled, connections);
        Some(pooler)
    }

    /// Verifies that nothing was left in the sessions that all clients share, and that there were several.
    fn verify_sessions(&self, connections: usize) {
        // The pooler has closed those of clients that ended inside a transaction.
        open_all(&self.pooled, connections);
        let sessions: BTreeSet<String> = (0..4 * connections).flat_map(|_| self.pooled.select(LEFT)).collect();
        let left: Vec<&String> = sessions.iter().filter(|of| !of.ends_with(": 0 0 0 {}")).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(connections == 1 || sessions.len() > 1, "{sessions:?}");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.pid) {
            kill(&pid);
        }
    }
}

/// Lets a pooler open so many connections, each for a transaction that does not end before the next one has begun.
fn open_all(pooled: &Server, connections: usize) {
    let open_others = || _ = std::thread::scope(|scope| scope.spawn(|| open_all(pooled, connections - 1)).join());
    if connections > 0 {
        pooled.while_locked("SELECT 1", open_others);
    }
}

/// The process of a session: its prepared statements, its locks, the channels that it listens to, and the settings that
/// the pooler itself does not set.
const LEFT: &str = "SELECT pg_backend_pid() || ': ' || (SELECT count(*) FROM pg_prepared_statements) || ' ' || \
     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) || ' ' || \
     (SELECT count(*) FROM pg_listening_channels()) || ' ' || (SELECT coalesce(array_agg(name), '{}') FROM pg_settings \
     WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', \
     'standard_conforming_strings', 'IntervalStyle'))::text";

/// Returns the program of the pooler: where Debian has it, or one of the path.
fn program() -> Option<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| Path::exists(program))
}

/// Runs the cases with some names.
fn run_cases(pooler: &Pooler, wanted: &[&str]) {
    let cases: Vec<_> = conformance::cases().iter().filter(|case| wanted.contains(&case.0)).copied().collect();
    assert_eq!(cases.len(), wanted.len(), "each name is that of a case");
    cases.iter().for_each(|case| suite::run_case(&pooler.pooled, case));
}

/// The cases of the suite that run behind a pooler: of what is stored, and of who may run.
const OF_THE_LOG: [&str; 5] = [
    "heads::none_of_all",
    "references::deltas",
    "listing::threads_and_check",
    "search::fields",
    "side_tables::cache_random",
];
const OF_RUNS: [&str; 5] =
    ["operations::batch_with_operation", "threads::queue", "leases::with_checkpoints", "claims::order", "claims::race"];
const FOLLOWING: [&str; 2] = ["following::order", "following::signals"];

fn share_of_the_suite(server: &Server, cases: &[&str]) {
    let connections = 3;
    let Some(pooler) = Pooler::start(server, connections, DROPS_OPTIONS) else { return };
    run_cases(&pooler, cases);
    pooler.verify_sessions(connections);
}

/// Calls take as many round trips as without a pooler.
fn round_trips(server: &Server) {
    let Some(pooler) = Pooler::start(server, 2, "") else { return };
    calls::of_a_log(&pooler.pooled);
    calls::of_a_graph(&pooler.pooled);
    pooler.verify_sessions(2);
}

/// No call holds a connection while it waits for another one: of a pooler that has one, and gives none away.
fn one_connection(server: &Server) {
    let Some(pooler) = Pooler::start(server, 1, DROPS_OPTIONS) else { return };
    let wanted = ["claims::limits", "claims::rates", "deletion::hidden", "leases::race", "pruning::pruned_state"];
    run_cases(&pooler, &wanted);
    pooler.verify_sessions(1);
}

fn race_of_processes(server: &Server) {
    let Some(pooler) = Pooler::start(server, 2, "") else { return };
    suite::race_of_processes(&pooler.pooled);
    pooler.verify_sessions(2);
}

const WORKERS: usize = 2;
const RUNS: u64 = 24;

/// Workers find the runs that another process enqueues, by looking, and run each once, under a limit.
fn workers(server: &Server) {
    let Some(pooler) = Pooler::start(server, 2, "") else { return };
    let url = pooler.pooled.empty();
    let open = || annals_postgres::open(&url).expect("the pooler is reached");
    let double = Entrypoint::new("double", |n: u64| Ok(2 * n)).compile().expect("a graph");
    let store = open();
    let controls: Vec<RunControl> = (0..WORKERS).map(|_| RunControl::new()).collect();
    let (ended, all_ended) = std::sync::mpsc::channel();
    let reports: Vec<_> = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for control in &controls {
            let (of, double, ended) = (open(), &double, ended.clone());
            workers.push(scope.spawn(move || {
                let limit = QueueLimit::new("double").concurrency(3);
                let worker = Worker::new(&of).register(double).concurrency(2).queue(limit).on_event(move |event| {
                    if ["done", "failed"].contains(&event.kind.as_str()) {
                        _ = ended.send(());
                    }
                });
                worker.run_until(control).expect("it works")
            }));
        }
        for n in 0..RUNS {
            double.enqueue(&store.thread(format!("run {n}")).expect("an id"), n).expect("it is enqueued");
        }
        all_ended.iter().take(RUNS as usize).for_each(drop);
        controls.iter().for_each(|control| control.request_drain("all runs have ended"));
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    assert_eq!(reports.iter().map(|report| (report.continued, report.failed)).fold((0, 0), add), (RUNS, 0));
    for n in 0..RUNS {
        let thread = store.thread(format!("run {n}")).expect("an id");
        assert_eq!(double.get_state(&thread).expect("a state").values.value(), Some(&(2 * n)));
    }
    assert_eq!(store.check().expect("a check").problems, []);
    pooler.verify_sessions(2);
}

fn add(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

/// The connections of the pooler to the server are cut under commits: nothing is lost, nothing is stored twice.
fn cut_connections(server: &Server) {
    // The connections of other poolers are cut as well.
    let Some(server) = server.another() else { return };
    let Some(pooler) = Pooler::before(&server, 3, DROPS_OPTIONS) else { return };
    let backend = pooler.pooled.backend();
    faults::write_under(&backend, 10, &|| server.cut());
    assert!(backend.check().expect("the check runs").problems.is_empty());
}

/// The settings of a URL hold behind a pooler, whether it refuses or drops them. Wrong ones are refused.
fn options(server: &Server) {
    for more in ["", DROPS_OPTIONS] {
        let Some(pooler) = Pooler::start(server, 2, more) else { return };
        let urls = [pooler.pooled.empty(), pooler.pooled.empty()];
        let backends = urls.each_ref().map(|url| PostgresBackend::connect(url).expect("the pooler is reached"));
        let [one, other] = urls.each_ref().map(|url| faults::schema_of(url));
        let tables = format!(
            "SELECT count(*) FROM pg_tables WHERE tablename = 'annals_schema' AND schemaname IN ('{one}', '{other}')"
        );
        assert_eq!(pooler.pooled.select(&tables), ["2"], "each schema has its tables");
        let thread = annals::base::ThreadId::new("t").expect("an id");
        faults::commit_one(&backends[0], &thread);
        let found = backends.each_ref().map(|backend| backend.threads(None, 9).expect("threads are listed").len());
        assert_eq!(found, [1, 0], "{more:?}");
        let patient = format!("{}%20-cstatement_timeout%3D12345", urls[0]);
        drop(PostgresBackend::connect(&patient).expect("the pooler is reached"));
        pooler.verify_sessions(2);
        for (wrong, told) in [("-e", "is not a setting"), ("-cannals_no_such=1", "annals_no_such")] {
            let url = format!("{}%20{}", urls[0], wrong.replace('=', "%3D"));
            let error = PostgresBackend::connect(&url).expect_err("the option is refused");
            assert!(matches!(error, StoreError::Open { .. }) && error.to_string().contains(told), "{error}");
        }
    }
}
