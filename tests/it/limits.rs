//! The limits that the documents state are those of the code.

use std::fmt::Debug;

use annals::base::limits;

/// Asserts that a table of a document has exactly these limits, in this order.
fn states(document: &str, expected: &[(&str, &dyn Debug)]) {
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [_, constant, value] = cells[..] else { return None };
        Some((constant.strip_prefix('`')?.strip_suffix('`')?.to_owned(), value.to_owned()))
    });
    let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), format!("{value:?}"))).collect();
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn the_page_of_workflows_states_the_limits_of_the_code() {
    macro_rules! limits {
        ($($name:ident),* $(,)?) => { [$((stringify!($name), &limits::$name as &dyn Debug)),*] };
    }
    let page = include_str!("../../docs/workflows.md");
    let (_, section) = page.split_once("\n## Limits\n").expect("the section of limits");
    states(
        section,
        &limits![
            LEASE_DEFAULT,
            LEASE_MIN,
            RECOVERIES_DEFAULT,
            CONTROL_INTERVAL,
            TRANSACTION_TIME_MAX,
            TRANSACTION_STATEMENTS_MAX,
            RUN_LOCK_WAITS_MAX,
            TASKS_MAX,
            ATTEMPTS_STORED_MAX,
            ATTEMPT_ERROR_BYTES_MAX,
            PRIORITY_MAX,
            LEASE_GROUPS_MAX,
            WORKER_POLL,
            CLAIM_RUNS_MAX,
            SCHEDULE_LOOK,
            SCHEDULE_LATE_MAX,
            SCHEDULE_RUNS_MAX,
        ],
    );
}
