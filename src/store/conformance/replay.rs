//! Long random histories with forks, compared with a replay that copies everything.

use super::build::*;
use std::collections::{BTreeMap, BTreeSet};

const STEPS: u64 = 120;
const LISTS: [&str; 2] = ["list", "other"];

/// The ordinal and the text of each position of a list.
type ReplayedList = BTreeMap<u64, (u64, String)>;

/// The whole state at a checkpoint.
#[derive(Clone, Default)]
struct Replay {
    /// The place, of which the third is in another thread.
    place: usize,
    /// The checkpoints from the first one of the lineage to this one.
    lineage: Vec<u64>,
    /// The first checkpoint of the branch.
    branch: u64,
    lists: [ReplayedList; 2],
    versions: [u64; 2],
    /// Per list the versions with their ordinals and a position that each has put, the oldest first.
    written: [Vec<(u64, u64, Option<u64>)>; 2],
    value: Option<(u64, String)>,
}

struct Dice(IdSource);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.random() % bound
    }
}

/// Picks operations for one list, and does them in the replay.
fn change_list(dice: &mut Dice, list: &mut ReplayedList, n: u64, ordinal: u64) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    let end = list.keys().next_back().map_or(0, |position| position + 1);
    if end > 0 && dice.below(6) == 0 {
        let from = dice.below(end);
        let to = from + 1 + dice.below(8);
        changes.push(delete_range(from, to));
        list.retain(|position, _| !(from..to).contains(position));
    }
    // A position changes once, apart from ranges.
    let mut taken = BTreeSet::new();
    for part in 0..dice.below(4) {
        let position = if end > 0 && dice.below(3) == 0 { dice.below(end) } else { end + part };
        if !taken.insert(position) {
            continue;
        }
        if list.contains_key(&position) && dice.below(3) == 0 {
            list.remove(&position);
            changes.push(remove(position));
        } else {
            list.insert(position, (ordinal, format!("{n}.{part}")));
            changes.push(put(position, format!("{n}.{part}")));
        }
    }
    changes
}

/// Histories with branches, forks of another thread and of another namespace, and new beginnings.
pub(super) fn random_history(backend: &dyn Log) {
    for seed in 1..=3 {
        let place = root_of(backend, &format!("seed {seed}"));
        let places = [place.clone(), place.inside("in:1"), root_of(backend, &format!("seed {seed}, forked"))];
        let mut dice = Dice(IdSource::from_seed(seed));
        let mut replays: BTreeMap<u64, Replay> = BTreeMap::new();
        for n in 1..=STEPS {
            let (replay, draft) = step(&mut dice, &replays, &places, n);
            places[replay.place].add(draft);
            if n % 8 == 0 {
                compare(&places, n, &replay);
            }
            replays.insert(n, replay);
        }
        let mut branches = BTreeMap::new();
        for (n, replay) in &replays {
            compare(&places, *n, replay);
            let branch = places[replay.place].record(*n).branch;
            assert_eq!(*branches.entry(replay.branch).or_insert(branch), branch, "the branch of checkpoint {n}");
        }
        let distinct: BTreeSet<u64> = branches.values().copied().collect();
        assert_eq!(distinct.len(), branches.len(), "each branch has a number of its own");
        for (at, place) in places.iter().enumerate() {
            let own = replays.iter().rev().filter(|(_, replay)| replay.place == at).map(|(n, _)| *n);
            assert_eq!(in_pages(place), own.collect::<Vec<_>>(), "the pages of {at}");
        }
        super::batches::law(backend, &place.thread);
    }
}

/// Picks the next checkpoint.
fn step(
    dice: &mut Dice,
    replays: &BTreeMap<u64, Replay>,
    places: &[CasePlace<'_>; 3],
    n: u64,
) -> (Replay, CheckpointDraft) {
    let at = if n == 1 { 0 } else { [0, 0, 0, 0, 1, 2][dice.below(6) as usize] };
    // Nothing in the first thread builds on the other one.
    let can_be_parent = |replay: &Replay| at == 2 || replay.place < 2;
    let head = replays.iter().rev().find(|(_, replay)| replay.place == at).map(|(n, _)| *n);
    // Three of four go on from the head; the others fork off any checkpoint, or begin anew.
    let parent = match dice.below(40) {
        _ if n == 1 => None,
        0 => None,
        1..10 => Some(1 + dice.below(n - 1)).filter(|parent| can_be_parent(&replays[parent])),
        _ => head.or(Some(1)),
    };
    let mut replay = parent.map(|parent| replays[&parent].clone()).unwrap_or_default();
    let from = std::mem::replace(&mut replay.place, at);
    replay.lineage.push(n);
    replay.branch = if parent.is_some() && parent == head { replay.branch } else { n };
    let mut draft = match parent {
        None => begin(n),
        Some(parent) if from == at => on(n, parent),
        Some(parent) => fork_of(n, places[from].point(parent)),
    };
    let ordinal = replay.lineage.len() as u64 - 1;
    for (list, channel) in LISTS.into_iter().enumerate() {
        if dice.below(3) > 0 {
            let changes = change_list(dice, &mut replay.lists[list], n, ordinal);
            replay.versions[list] += 1 + dice.below(3);
            let position = changes.iter().find(|change| matches!(change.op, ItemOp::Put(_))).map(|put| put.position);
            replay.written[list].push((replay.versions[list], ordinal, position));
            draft = draft.items(channel, replay.versions[list], changes);
        }
    }
    if dice.below(3) == 0 {
        let version = replay.value.as_ref().map_or(1, |(version, _)| version + 1);
        draft = draft.value("value", version, n.to_string());
        replay.value = Some((version, n.to_string()));
    }
    (replay, draft)
}

/// Returns the checkpoints of a namespace from pages of 7.
fn in_pages(place: &CasePlace<'_>) -> Vec<u64> {
    let (mut query, mut found) = (CheckpointQuery { limit: 7, ..place.query() }, Vec::new());
    loop {
        let page = page(place.backend, &query);
        query.before = page.last().map(|n| id(*n));
        found.extend(&page);
        if page.len() < 7 {
            return found;
        }
    }
}

fn compare(places: &[CasePlace<'_>; 3], n: u64, replay: &Replay) {
    let (place, backend) = (&places[replay.place], places[0].backend);
    let ordinal = replay.lineage.len() as u64 - 1;
    assert_eq!(place.record(n).ordinal, ordinal, "the ordinal of checkpoint {n}");
    let all: Vec<u64> = (0..=ordinal + 1).rev().collect();
    let found = backend.ancestors(&place.point(n), &all).expect("reads a lineage");
    let found = found.into_iter().rev().map(|record| record.map(|record| number(record.point.checkpoint)));
    let lineage = replay.lineage.iter().copied().map(Some).chain([None]);
    assert!(lineage.eq(found), "the lineage of checkpoint {n}");
    // The items of a list are visited only if they are wanted.
    let wants = |channel: &str| n.is_multiple_of(2) || channel != LISTS[1];
    let mut whole = Vec::new();
    for (at, channel) in LISTS.into_iter().enumerate() {
        let expected: Vec<_> =
            replay.lists[at].iter().map(|(position, (ordinal, text))| (*position, *ordinal, text.clone())).collect();
        let read = |range| -> Vec<(u64, u64, String)> {
            let found = place.items(n, channel, range).into_iter();
            found.map(|(position, ordinal, _, item)| (position, ordinal, text_of(&item.data))).collect()
        };
        assert_eq!(read(ItemRange::All), expected, "{channel} at checkpoint {n}");
        assert_eq!(place.list_len(n, channel), expected.len() as u64, "the length of {channel} at checkpoint {n}");
        let (tail, from) = (expected.len().saturating_sub(3), n % 17);
        assert_eq!(read(ItemRange::Tail(3)), expected[tail..], "the tail of {channel} at checkpoint {n}");
        let mut inside = expected.clone();
        inside.retain(|(position, ..)| (from..from + 9).contains(position));
        assert_eq!(read(ItemRange::Positions(from, from + 9)), inside, "positions of {channel} at checkpoint {n}");
        let version = place.channel(n, channel).map_or(0, |channel| channel.version);
        assert_eq!(version, replay.versions[at], "the version of {channel} at checkpoint {n}");
        let mut written = replay.written[at].iter().rev();
        let visited = backend.versions(&place.point(n), Some(channel), 0, &mut |found| {
            let (version, ordinal, put) = written.next().expect("no more versions than were written");
            assert_eq!((found.channel.version, found.channel.ordinal), (*version, *ordinal));
            let range = found.positions.as_ref().expect("a list has positions");
            assert!(put.is_none_or(|put| range.contains(&put)), "version {version} of {channel} put {put:?}");
            Ok(true)
        });
        visited.expect("reads versions");
        assert!(written.next().is_none(), "every version of {channel} at checkpoint {n}");
        whole.extend((version > 0).then(|| channel.to_owned()));
        let items = expected.into_iter().filter(|_| wants(channel));
        whole.extend(items.map(|(position, _, text)| format!("{position}={text}")));
    }
    let value = place.channel(n, "value").map(|channel| (channel.version, place.text(n, "value")));
    assert_eq!(value, replay.value, "the value at checkpoint {n}");
    whole.extend(value.map(|_| "value".to_owned()));
    let mut found = Vec::new();
    let read = backend.read_state(&place.point(n), &mut |part| {
        match part {
            StatePart::Record(record) => assert!(found.is_empty() && *record == place.state(n), "it comes first"),
            StatePart::Channel(channel) => {
                found.push(channel.channel.to_string());
                return Ok(wants(&channel.channel));
            }
            StatePart::Item(row) => found.push(format!("{}={}", row.position, text_of(row.payload.data))),
            other => panic!("no other part was asked for: {other:?}"),
        }
        Ok(true)
    });
    read.expect("reads a whole state");
    assert_eq!(found, whole, "the whole state at checkpoint {n}");
}
