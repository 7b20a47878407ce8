//! The suite of the engine on the server, and its race of processes.

use std::process::{Command, ExitCode};

use annals::store::conformance;
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for case in conformance::cases() {
        let run = move |server: &Server| run_case(server, case);
        tests.push((format!("suite::{}", case.0), Box::new(run)));
    }
    tests.push((
        "suite::calls".into(),
        Box::new(|server| conformance::run_calls(&|| std::sync::Arc::new(server.backend()))),
    ));
    tests.push(("suite::race_of_processes".into(), Box::new(race_of_processes)));
    tests.push(("suite::partitions".into(), Box::new(partitions)));
    tests
}

/// Runs a case on empty tables.
pub(crate) fn run_case(server: &Server, case: &(&str, conformance::Case)) {
    server.with_tables(|url| {
        let connect = || PostgresBackend::connect(url).expect("the server is reached");
        conformance::run_all(&[*case], &|| std::sync::Arc::new(connect()));
    });
}

/// Partitioned tables hold what others hold.
fn partitions(server: &Server) {
    let wanted = ["listing::threads_and_check", "search::deleted"];
    let cases: Vec<_> = conformance::cases().iter().filter(|case| wanted.contains(&case.0)).copied().collect();
    assert_eq!(cases.len(), wanted.len());
    conformance::run_all(&cases, &|| {
        let url = server.empty();
        annals_postgres::create_partitioned(&url, 3).expect("the tables are made");
        annals_postgres::create_partitioned(&url, 3).expect_err("there are tables");
        std::sync::Arc::new(PostgresBackend::connect(&url).expect("the server is reached"))
    });
    annals_postgres::create_partitioned(&server.empty(), 0).expect_err("there must be one");
}

/// The number of processes of the race.
const PROCESSES: u64 = 4;

pub(crate) fn race_of_processes(server: &Server) {
    let (url, program) = (server.empty(), std::env::current_exe().expect("the program of the tests"));
    let backend = PostgresBackend::connect(&url).expect("the server is reached");
    let race = |process: u64| {
        let mut command = Command::new(&program);
        command.args(["race", &url, &process.to_string()]).spawn().expect("a process starts")
    };
    let processes: Vec<_> = (0..PROCESSES).map(race).collect();
    for mut process in processes {
        assert!(process.wait().expect("it ends").success());
    }
    conformance::race_ended(&backend, PROCESSES);
}

/// Runs the part of a process in the race.
pub(crate) fn race(args: &[String]) -> ExitCode {
    let [url, process] = args else { return ExitCode::FAILURE };
    let backend = PostgresBackend::connect(url).expect("the server is reached");
    conformance::race(&backend, process.parse().expect("a number"));
    ExitCode::SUCCESS
}
