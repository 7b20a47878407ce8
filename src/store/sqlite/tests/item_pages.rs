//! Pages of a list, and the places of rows that the writer retains.

use super::*;
use crate::limits::{ITEM_PAGE_BYTES_MAX, ITEM_PAGE_ROWS_MAX, PLACES_CACHE_MAX};
use crate::store::sqlite::commit::places::BranchPlaces;
use crate::store::sqlite::read::item_pages::ItemPages;
use crate::store::sqlite::rows::version::{INDEX_SNAPSHOT, KeyContent, NO_CHANGES, SEEN, VersionRow};

const PAGE: u64 = ITEM_PAGE_ROWS_MAX as u64;

fn listed(items: Vec<ItemChange>) -> (Bench, CheckpointRef) {
    let mut bench = Bench::new();
    let head = bench.add(&thread("a"), None, vec![list(1, items)]);
    (bench, at(&thread("a"), head))
}

/// Returns the numbers of items of the pages of a range.
fn sizes((bench, at): &(Bench, CheckpointRef), range: ItemRange) -> Vec<u64> {
    let (mut pages, mut sizes) = (ItemPages::new(range), Vec::new());
    while let Some(page) = bench.store.pool.read(|view| pages.read(view, at, "messages")).unwrap() {
        let mut size = 0;
        let count = &mut |_: crate::store::record::ItemRow<'_>| {
            size += 1;
            Ok(())
        };
        page.visit(count).unwrap();
        sizes.push(size);
    }
    sizes
}

#[test]
fn a_page_ends_at_its_number_of_rows() {
    let of = listed((0..2 * PAGE + 76).map(|n| put(n, "item")).collect());
    assert_eq!(sizes(&of, ItemRange::All), [PAGE, PAGE, 76]);
    assert_eq!(sizes(&of, ItemRange::Positions(0, 2 * PAGE)), [PAGE, PAGE]);
    assert_eq!(sizes(&of, ItemRange::Positions(7, 10)), [3]);
    assert_eq!(sizes(&of, ItemRange::Tail(700)), [PAGE, 188]);
    assert_eq!(sizes(&of, ItemRange::Tail(ITEM_PAGE_ROWS_MAX)), [PAGE]);
    assert_eq!(sizes(&of, ItemRange::Tail(300)), [300]);
}

#[test]
fn a_page_ends_at_the_bytes_of_its_data_and_texts() {
    let bytes = ITEM_PAGE_BYTES_MAX * 2 / 5;
    let data = |position| {
        let op = ItemOp::Put(Data::New(plain(&vec![7; bytes])));
        ItemChange { position, op, task: None }
    };
    assert_eq!(sizes(&listed((0..7).map(data).collect()), ItemRange::All), [3, 3, 1]);
    let text = "x".repeat(bytes);
    assert_eq!(sizes(&listed((0..7).map(|n| put(n, &text)).collect()), ItemRange::All), [3, 3, 1]);
}

#[test]
fn a_page_with_few_items_makes_the_next_one_longer() {
    let stepped = |step: u64, items: u64| listed((0..items).map(|n| put(step * n, "item")).collect());
    assert_eq!(sizes(&stepped(2, 5 * PAGE / 2), ItemRange::All), [PAGE, 256, 256, 256]);
    assert_eq!(sizes(&stepped(4, 7 * PAGE / 4), ItemRange::All), [PAGE, 128, 128, 128]);
    assert_eq!(sizes(&stepped(8, PAGE + 576), ItemRange::All), [PAGE, 64, 256, 256]);
}

fn row(key: i64, kind: i64) -> VersionRow {
    VersionRow::derived(kind, (1, 0), key, KeyContent::Packed(Vec::new()))
}

#[test]
fn the_places_of_a_branch_are_known_from_its_begin_on() {
    let mut places = BranchPlaces::default();
    places.begin(3, 64, &[(5, 1, 10), (6, 2, 20)]);
    assert_eq!(places.at(3, 63).unwrap(), [(5, 1, 10), (6, 2, 20)]);
    assert!(places.at(3, 64).is_none() && places.at(3, 65).is_none() && places.at(4, 63).is_none());
    places.add((3, 64), &[row(6, SEEN), row(0, INDEX_SNAPSHOT), row(9, SEEN)]);
    assert_eq!(places.at(3, 64).unwrap(), [(5, 1, 10), (6, 3, 64), (9, 3, 64)]);
    assert!(places.at(3, 63).is_none());
    places.add((3, 65), &[row(0, NO_CHANGES)]);
    assert_eq!(places.at(3, 65).unwrap(), [(5, 1, 10), (6, 3, 64), (9, 3, 64)]);
    // A checkpoint that is not the next one leaves a gap.
    places.add((3, 67), &[row(5, SEEN)]);
    assert!(places.at(3, 65).is_none() && places.at(3, 67).is_none());

    places.add((7, 0), &[row(2, SEEN)]);
    assert_eq!(places.at(7, 0).unwrap(), [(2, 7, 0)]);
    places.add((8, 1), &[row(2, SEEN)]);
    assert!(places.at(8, 1).is_none(), "what was before is not known");
    places.clear();
    assert!(places.at(7, 0).is_none());
}

#[test]
fn too_many_places_are_forgotten() {
    let is_known = |places: &mut BranchPlaces| {
        places.bound();
        places.at(1, 0).is_some()
    };
    let mut few = BranchPlaces::default();
    few.add((1, 0), &[row(2, SEEN)]);
    assert!(is_known(&mut few));

    let mut begun = BranchPlaces::default();
    (1..=PLACES_CACHE_MAX as i64).for_each(|branch| begun.begin(branch, 1, &[]));
    assert!(is_known(&mut begun));
    begun.begin(0, 1, &[]);
    assert!(!is_known(&mut begun));

    let mut added = BranchPlaces::default();
    let rows: Vec<VersionRow> = (1..PLACES_CACHE_MAX as i64).map(|key| row(key, SEEN)).collect();
    added.add((1, 0), &rows);
    assert!(is_known(&mut added));
    added.add((1, 1), &rows[..10]);
    added.bound();
    assert!(added.at(1, 1).is_some(), "keys that were known");
    added.add((1, 2), &[row(0, SEEN)]);
    added.bound();
    assert!(added.at(1, 2).is_none());

    let places: Vec<_> = (0..PLACES_CACHE_MAX as i64).map(|key| (key, 1, 0)).collect();
    let mut at_once = BranchPlaces::default();
    at_once.begin(1, 1, &places[1..]);
    assert!(is_known(&mut at_once));
    at_once.begin(1, 1, &places[..1]);
    assert!(!is_known(&mut at_once));
}
