//! The records of failed attempts.

use super::*;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn started(attempts: &Attempts) -> Vec<(i64, i64)> {
    attempts.attempts.iter().map(|attempt| (attempt.started, attempt.ended)).collect()
}

#[test]
fn a_pause_is_long_past_its_limit() {
    assert!(!is_long(RETRY_PAUSE_MAX));
    assert!(is_long(RETRY_PAUSE_MAX + Duration::from_nanos(1)));
}

#[test]
fn the_first_attempt_of_a_series_has_begun_with_its_task_and_the_others_when_they_were_due() {
    // The next attempt of an earlier series does not count.
    let mut attempts = Attempts { next: Some(3), ..Attempts::default() };
    note(&mut attempts, &"first", at(10), at(20));
    assert_eq!((started(&attempts), attempts.failed, attempts.next), (vec![(10, 20)], 1, None));
    follow(&mut attempts, Attempt { number: 1, calls: 2 }, at(30));
    assert_eq!((attempts.number, attempts.calls, attempts.next), (1, 2, Some(30)));
    note(&mut attempts, &"second", at(10), at(40));
    assert_eq!((started(&attempts), attempts.failed), (vec![(10, 20), (30, 40)], 2));
    // A clock that was set back ends no attempt before it began.
    note(&mut attempts, &"third", at(10), at(5));
    assert_eq!(started(&attempts)[2], (5, 5));
}

#[test]
fn an_attempt_that_was_the_only_one_is_not_noted() {
    let mut attempts = Attempts::default();
    end(&mut attempts, &"only", at(1), at(2));
    assert!(attempts == Attempts::default() && take_write(&mut attempts).is_none());
    note(&mut attempts, &"first", at(1), at(2));
    end(&mut attempts, &"last", at(3), at(4));
    assert_eq!((attempts.attempts.len(), attempts.failed, attempts.next), (2, 0, None));
    assert!(take_write(&mut attempts).is_some() && take_write(&mut attempts).is_none());
}
