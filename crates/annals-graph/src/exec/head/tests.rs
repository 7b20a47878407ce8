//! The states of a task, as its stored writes tell them.

use super::*;
use crate::base::Encoded;

fn pending(writes: &[(i32, bool)]) -> PendingWrites {
    let text = || WriteValue::One(Encoded::encode("x").unwrap().into());
    let write = |(index, holds): &(i32, bool)| PendingWrite {
        index: *index,
        channel: "c".into(),
        value: if *holds { text() } else { WriteValue::Null },
        base: None,
    };
    PendingWrites { task: TaskId::default(), path: "p".into(), writes: writes.iter().map(write).collect() }
}

#[test]
fn a_task_has_an_error_until_that_is_cleared() {
    assert!(pending(&[(SpecialWrite::Resume.index(), true), (SpecialWrite::Error.index(), true)]).has_error());
    assert!(!pending(&[(SpecialWrite::Error.index(), false)]).has_error());
    assert!(
        !pending(&[(SpecialWrite::Interrupt.index(), true), (SpecialWrite::EarlierError.index(), true)]).has_error()
    );
    assert!(!pending(&[]).has_error());
}

#[test]
fn a_task_is_woken_when_its_error_or_its_interrupts_are_cleared() {
    assert!(pending(&[(SpecialWrite::Error.index(), false)]).is_woken());
    assert!(pending(&[(SpecialWrite::Error.index(), true), (SpecialWrite::Interrupt.index(), false)]).is_woken());
    assert!(!pending(&[(SpecialWrite::Error.index(), true), (SpecialWrite::Interrupt.index(), true)]).is_woken());
    assert!(!pending(&[(0, false), (SpecialWrite::Partial.index(), false)]).is_woken());
    assert!(!pending(&[]).is_woken());
}

#[test]
fn a_task_has_ended_with_a_write_that_is_not_a_special_one() {
    assert!(pending(&[(0, false)]).is_finished());
    assert!(pending(&[(SpecialWrite::Error.index(), true), (2, true)]).is_finished());
    assert!(!pending(&[(SpecialWrite::Error.index(), true), (SpecialWrite::Resume.index(), true)]).is_finished());
}

#[test]
fn the_base_of_a_delta_says_whether_it_is_of_its_own_list() {
    let base = DeltaBase { list: std::sync::Arc::new(()), is_own: true };
    assert_eq!(format!("{base:?}"), "DeltaBase { is_own: true, .. }");
}
