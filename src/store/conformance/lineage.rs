//! Whole states in one read, and the checkpoints of a lineage by their ordinals.

use super::build::{CasePlace, CheckpointDraft, delete_range, id, put, root_of};
use crate::store::backend::Backend;
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::{ChannelValue, StatePart};

/// A thread of four checkpoints, and a fork of its third one with two checkpoints more.
fn forked(backend: &dyn Backend, name: &str) -> (CasePlace, CasePlace) {
    let (place, fork) = (root_of(name), root_of(&format!("{name}, forked")));
    place.add(
        backend,
        None,
        CheckpointDraft::root(1).value("a", 1, "1").items("list", 1, vec![put(0, "x"), put(1, "y")]),
    );
    place.add(
        backend,
        Some(1),
        CheckpointDraft::on(2, 1).items("list", 2, vec![put(2, "z")]).items("other", 1, vec![put(7, "o")]),
    );
    place.add(
        backend,
        Some(2),
        CheckpointDraft::on(3, 2).items("list", 3, vec![delete_range(0, 1)]).value("b", 1, "2"),
    );
    place.add(backend, Some(3), CheckpointDraft::on(4, 3).value("b", 2, "3"));
    fork.add(backend, None, CheckpointDraft::fork(5, place.point(3)));
    fork.add(backend, Some(5), CheckpointDraft::on(6, 5).items("list", 4, vec![put(3, "w")]));
    (place, fork)
}

/// Reads a whole state as lines: `channel@version`, and `channel[position]=text` for the items that are wanted.
fn whole(backend: &dyn Backend, place: &CasePlace, n: u64, wants: &dyn Fn(&str) -> bool) -> Vec<String> {
    let (mut lines, mut last, mut visited) = (Vec::new(), String::new(), None);
    let read = backend.read_state(&place.point(n), &mut |part| {
        match part {
            StatePart::Record(record) => {
                assert!(visited.replace(record.clone()).is_none() && lines.is_empty(), "the record comes first, once");
            }
            StatePart::Channel(channel) => {
                last = channel.channel.to_string();
                lines.push(format!("{last}@{}", channel.version));
                return Ok(wants(&last));
            }
            StatePart::Item(row) => {
                lines.push(format!("{last}[{}]={}", row.position, String::from_utf8_lossy(row.payload.data)));
            }
        }
        Ok(true)
    });
    read.expect("reads a whole state");
    let state = backend.state(&place.point(n)).expect("reads a state");
    assert_eq!(visited, Some(state), "the record is that of the state");
    lines
}

/// A whole state equals the channels and the items that are read on their own.
pub(super) fn whole_states(backend: &dyn Backend) {
    let (place, fork) = forked(backend, "whole state");
    let all = |_: &str| true;
    assert_eq!(
        whole(backend, &fork, 6, &all),
        ["a@1", "b@1", "list@4", "list[1]=y", "list[2]=z", "list[3]=w", "other@1", "other[7]=o"]
    );
    assert_eq!(whole(backend, &place, 4, &|name| name == "other"), ["a@1", "b@2", "list@3", "other@1", "other[7]=o"]);
    for (place, n) in [(&place, 1), (&place, 2), (&place, 3), (&place, 4), (&fork, 5), (&fork, 6)] {
        let mut apart = Vec::new();
        for channel in backend.state(&place.point(n)).expect("reads a state").channels {
            apart.push(format!("{}@{}", channel.channel, channel.version));
            if channel.value == ChannelValue::Items {
                let each = backend.items(&place.point(n), &channel.channel, ItemRange::All, &mut |row| {
                    let text = String::from_utf8_lossy(row.payload.data);
                    apart.push(format!("{}[{}]={text}", channel.channel, row.position));
                    Ok(())
                });
                each.expect("reads items");
            }
        }
        assert_eq!(whole(backend, place, n, &all), apart, "checkpoint {n}");
    }
    let missing = backend.read_state(&place.point(9), &mut |_| panic!("a part of no checkpoint"));
    assert!(matches!(missing, Err(StoreError::CheckpointNotFound { .. })), "{missing:?}");
    let refused = backend.read_state(&place.point(4), &mut |_| Err(StoreError::ReadOnly));
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "the error of the visitor is returned: {refused:?}");
}

/// The checkpoints of a lineage are found by their ordinals, across a fork.
pub(super) fn ancestors(backend: &dyn Backend) {
    let (place, fork) = forked(backend, "ancestors");
    let find = |place: &CasePlace, n: u64, ordinals: &[u64]| -> Vec<Option<u64>> {
        let found = backend.ancestors(&place.point(n), ordinals).expect("reads a lineage");
        let number = |wanted| (1..=6).find(|n| id(*n) == wanted).expect("a checkpoint of the thread");
        found.into_iter().map(|record| record.map(|record| number(record.point.checkpoint))).collect()
    };
    assert_eq!(find(&fork, 6, &[0, 1, 2, 3, 4, 5]), [Some(1), Some(2), Some(3), Some(5), Some(6), None]);
    assert_eq!(find(&place, 4, &[3, 0, 3, u64::MAX, 2]), [Some(4), Some(1), Some(4), None, Some(3)], "in any order");
    assert_eq!(find(&place, 2, &[]), []);
    let of_fork = backend.ancestors(&fork.point(6), &[2]).expect("reads a lineage").remove(0).expect("it is stored");
    assert_eq!(of_fork.point, place.point(3), "an ancestor before the fork is in the thread it was forked from");
    let missing = backend.ancestors(&place.point(9), &[0]);
    assert!(matches!(missing, Err(StoreError::CheckpointNotFound { .. })), "{missing:?}");
}
