//! A long random history with forks, compared with a replay that copies everything.

use std::collections::BTreeMap;

use super::build::{CasePlace, CheckpointDraft, clean, commit, delete_range, items, put, remove, root_of};
use crate::base::IdSource;
use crate::store::batch::ItemChange;
use crate::store::log::Log;
use crate::store::query::ItemRange;

const STEPS: u64 = 200;
const LISTS: [&str; 2] = ["list", "other"];

/// The whole state at a checkpoint: per list the text and ordinal of each position, and the version; and a value.
#[derive(Clone, Default)]
struct Replay {
    ordinal: u64,
    lists: [BTreeMap<u64, (u64, String)>; 2],
    versions: [u64; 2],
    value: Option<(u64, String)>,
}

struct Dice(IdSource);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.random() % bound
    }
}

/// Picks operations for one list, and does them in the replay.
fn change_list(dice: &mut Dice, list: &mut BTreeMap<u64, (u64, String)>, n: u64, ordinal: u64) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    let end = list.keys().next_back().map_or(0, |position| position + 1);
    if end > 0 && dice.below(6) == 0 {
        let from = dice.below(end);
        let to = from + 1 + dice.below(8);
        changes.push(delete_range(from, to));
        list.retain(|position, _| !(from..to).contains(position));
    }
    // A position changes once, apart from ranges.
    let mut taken = Vec::new();
    for part in 0..dice.below(4) {
        let text = format!("{n}.{part}");
        let position = if end > 0 && dice.below(3) == 0 { dice.below(end) } else { end + part };
        if taken.contains(&position) {
            continue;
        }
        taken.push(position);
        if list.contains_key(&position) && dice.below(3) == 0 {
            list.remove(&position);
            changes.push(remove(position));
        } else {
            list.insert(position, (ordinal, text.clone()));
            changes.push(put(position, text));
        }
    }
    changes
}

pub(super) fn random_history(backend: &dyn Log) {
    for seed in 1..=3 {
        let place = root_of(&format!("seed {seed}"));
        let mut dice = Dice(IdSource::from_seed(seed));
        let mut replays: BTreeMap<u64, Replay> = BTreeMap::new();
        for n in 1..=STEPS {
            // Three of four go on from the head; the others fork off any checkpoint, or begin anew.
            let parent = match dice.below(40) {
                _ if n == 1 => None,
                0 => None,
                1..10 => Some(1 + dice.below(n - 1)),
                _ => Some(n - 1),
            };
            let mut replay = parent.map(|parent| replays[&parent].clone()).unwrap_or_default();
            replay.ordinal = parent.map_or(0, |_| replay.ordinal + 1);
            let mut draft = parent.map_or_else(|| CheckpointDraft::root(n), |parent| CheckpointDraft::on(n, parent));
            for (at, channel) in LISTS.into_iter().enumerate() {
                if dice.below(3) > 0 {
                    let changes = change_list(&mut dice, &mut replay.lists[at], n, replay.ordinal);
                    replay.versions[at] += 1 + dice.below(3);
                    draft = draft.items(channel, replay.versions[at], changes);
                }
            }
            if dice.below(3) == 0 {
                let version = replay.value.as_ref().map_or(1, |(version, _)| version + 1);
                draft = draft.value("value", version, n.to_string());
                replay.value = Some((version, n.to_string()));
            }
            commit(backend, &place.batch((n > 1).then(|| n - 1), [draft]));
            compare(backend, &place, n, &replay);
            replays.insert(n, replay);
        }
        for (n, replay) in &replays {
            compare(backend, &place, *n, replay);
        }
        super::batches::law(backend, &place.thread);
    }
    clean(backend);
}

fn compare(backend: &dyn Log, place: &CasePlace, n: u64, replay: &Replay) {
    let record = place.record(backend, n);
    assert_eq!(record.ordinal, replay.ordinal, "the ordinal of checkpoint {n}");
    for (at, channel) in LISTS.into_iter().enumerate() {
        let expected: Vec<_> =
            replay.lists[at].iter().map(|(position, (ordinal, text))| (*position, *ordinal, text.clone())).collect();
        let read = |range| -> Vec<(u64, u64, String)> {
            let found = items(backend, &place.point(n), channel, range);
            let text = |data| String::from_utf8(data).expect("text was put in");
            found.into_iter().map(|(position, ordinal, item)| (position, ordinal, text(item.data))).collect()
        };
        assert_eq!(read(ItemRange::All), expected, "{channel} at checkpoint {n}");
        let tail = expected.len().saturating_sub(3);
        assert_eq!(read(ItemRange::Tail(3)), expected[tail..], "the tail of {channel} at checkpoint {n}");
        let from = n % 17;
        let inside: Vec<_> =
            expected.iter().filter(|(position, ..)| (from..from + 9).contains(position)).cloned().collect();
        assert_eq!(read(ItemRange::Positions(from, from + 9)), inside, "positions of {channel} at checkpoint {n}");
        let version = place.channel(backend, n, channel).map_or(0, |channel| channel.version);
        assert_eq!(version, replay.versions[at], "the version of {channel} at checkpoint {n}");
    }
    let value = place.channel(backend, n, "value").map(|channel| channel.version).zip(place.text(backend, n, "value"));
    assert_eq!(value, replay.value, "the value at checkpoint {n}");
}
