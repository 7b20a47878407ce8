//! The masks of stream modes.

use super::*;

/// The masks with one mode each, in the order of the fields.
fn single() -> [EventMask; 8] {
    let none = EventMask::default;
    [
        EventMask { values: true, ..none() },
        EventMask { updates: true, ..none() },
        EventMask { custom: true, ..none() },
        EventMask { messages: true, ..none() },
        EventMask { tasks: true, ..none() },
        EventMask { checkpoints: true, ..none() },
        EventMask { debug: true, ..none() },
        EventMask { subgraphs: true, ..none() },
    ]
}

#[test]
fn a_union_has_the_modes_of_both() {
    for mask in single() {
        assert_eq!(mask.or(EventMask::default()), mask);
        assert_eq!(EventMask::default().or(mask), mask);
        assert_eq!(mask.or(mask), mask);
    }
}

#[test]
fn some_modes_are_live_and_some_show_calls() {
    let which = |is: fn(EventMask) -> bool| single().map(is);
    assert_eq!(which(EventMask::are_live), [false, false, true, true, false, false, false, true]);
    assert_eq!(which(EventMask::show_calls), [false, true, false, true, true, false, true, false]);
}

#[test]
fn a_subgraph_is_shown_if_subgraphs_are() {
    let all = EventMask { subgraphs: true, values: true, ..EventMask::default() };
    assert_eq!(all.inside(), all);
    assert_eq!(single()[0].inside(), EventMask::default());
}
