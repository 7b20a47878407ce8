//! The codecs of columns at their borders, and bytes that they refuse.

use super::*;
use crate::base::Codec;
use crate::limits::INLINE_BYTES_MAX;
use crate::store::sqlite::rows::pack::{
    DeletedRange, Inline, PackedKind, PackedTask, Unpack, ValueColumn, pack_index_snapshot, pack_ranges,
    pack_reference, pack_seen, pack_tasks, put_uint, unpack_index_snapshot, unpack_parents, unpack_ranges,
    unpack_reference, unpack_seen, unpack_tasks,
};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

fn uint(n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_uint(&mut out, n);
    out
}

#[test]
fn a_number_is_packed_in_seven_bits_a_byte() {
    let exact: [(u64, &[u8]); 7] = [
        (0, &[0]),
        (127, &[0x7f]),
        (128, &[0x80, 1]),
        (300, &[0xac, 2]),
        (16_383, &[0xff, 0x7f]),
        (16_384, &[0x80, 0x80, 1]),
        (1 << 63, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
    ];
    for (n, bytes) in exact {
        assert_eq!(uint(n), bytes);
        assert_eq!(Unpack(bytes).uint(), Some(n));
    }
    for shift in 0..64 {
        for n in [1 << shift, (1 << shift) - 1, !(1_u64 << shift)] {
            let bytes = uint(n);
            let mut rest = Unpack(&bytes);
            assert_eq!((rest.uint(), rest.is_empty()), (Some(n), true));
        }
    }
}

#[test]
fn a_number_above_64_bits_is_refused() {
    let tenth = |byte: u8| Unpack(&[[0x80; 9].as_slice(), &[byte]].concat()).uint();
    assert_eq!(tenth(1), Some(1 << 63));
    for byte in [2, 3, 0x7f, 0x81, 0xff] {
        assert_eq!(tenth(byte), None, "{byte}");
    }
    assert_eq!(Unpack(&[]).uint(), None);
}

#[test]
fn a_row_id_has_63_bits() {
    assert_eq!(Unpack(&uint(i64::MAX as u64)).id(), Some(i64::MAX));
    assert_eq!(Unpack(&uint(i64::MAX as u64 + 1)).id(), None);
    assert_eq!(Unpack(&[7]).id(), Some(7));
    let mut rest = Unpack(&[1, 2, 3]);
    assert_eq!((rest.take(2), rest.take(2), rest.take(1)), (Some([1, 2].as_slice()), None, Some([3].as_slice())));
    assert!(rest.is_empty() && rest.take(0) == Some(&[]));
}

#[test]
fn hundreds_of_tasks_come_back() {
    let task = |n: u32| PackedTask {
        id: TaskId::from_bytes([(n % 251) as u8; 16]),
        node: i64::from(n) * 1_000,
        kind: if n.is_multiple_of(3) { PackedKind::Pull((0..i64::from(n % 4)).collect()) } else { PackedKind::Push(n) },
    };
    for (count, beginning) in [(0, &[0][..]), (1, &[1]), (127, &[127]), (128, &[128, 1]), (700, &[188, 5])] {
        let tasks: Vec<PackedTask> = (0..count).map(task).collect();
        let bytes = pack_tasks(&tasks);
        assert_eq!(&bytes[..beginning.len()], beginning);
        assert_eq!(unpack_tasks(&bytes).as_deref(), Some(tasks.as_slice()));
    }
    let last = [PackedTask { node: i64::MAX, kind: PackedKind::Push(u32::MAX), ..task(0) }];
    assert_eq!(unpack_tasks(&pack_tasks(&last)).as_deref(), Some(last.as_slice()));
}

#[test]
fn tasks_that_do_not_fit_are_refused() {
    let one = |rest: &[u8]| [&[1], [9; 16].as_slice(), rest].concat();
    assert!(unpack_tasks(&one(&[5, 0])).is_some());
    assert_eq!(unpack_tasks(&one(&[5, 0, 0])), None, "a byte behind them");
    assert_eq!(unpack_tasks(&one(&[5, 2])), None, "a trigger is missing");
    assert_eq!(unpack_tasks(&[0xff, 0xff, 0xff, 1]), None, "the ids are missing");
    let push = |index: u64| unpack_tasks(&one(&[&[5], uint((index << 1) | 1).as_slice()].concat()));
    assert!(push(u64::from(u32::MAX)).is_some());
    assert_eq!(push(u64::from(u32::MAX) + 1), None, "a number of a push above 32 bits");
}

#[test]
fn parents_with_a_path_that_is_none_are_refused() {
    let of = |path: &[u8]| [&[1; 16], uint(path.len() as u64).as_slice(), path].concat();
    assert_eq!(unpack_parents(Some(&of(b"a:1"))).unwrap().len(), 1);
    assert_eq!(unpack_parents(Some(&of(b"\xff"))), None);
    assert_eq!(unpack_parents(Some(&[])).as_deref(), Some([].as_slice()));
}

#[test]
fn seen_versions_are_byte_exact() {
    assert_eq!(pack_seen([(4, 9), (300, 128)]), [4, 9, 0xac, 2, 0x80, 1]);
    assert_eq!(pack_seen([]), [0; 0]);
    assert_eq!(unpack_seen(&[4, 9, 0xac, 2, 0x80, 1]), Some(vec![(4, 9), (300, 128)]));
    assert_eq!((unpack_seen(&[4]), unpack_seen(&[4, 9, 4])), (None, None));
    assert_eq!(unpack_seen(&[]), Some(Vec::new()));
    let last = [(i64::MAX, u64::MAX)];
    assert_eq!(unpack_seen(&pack_seen(last)), Some(last.to_vec()));
}

#[test]
fn index_snapshots_are_distances() {
    let places = [(10, 7, 127), (12, 3, 0), (300, 7, 128)];
    let bytes = pack_index_snapshot(7, 128, &places);
    assert_eq!(bytes, [10, 0, 1, 2, 4, 0x80, 1, 0xa0, 2, 0, 0]);
    assert_eq!(unpack_index_snapshot(7, 128, &bytes).as_deref(), Some(places.as_slice()));
    assert_eq!(unpack_index_snapshot(7, 128, &[]), Some(Vec::new()));
    assert_eq!(unpack_index_snapshot(7, 128, &bytes[..10]), None);
    let far = [uint(i64::MAX as u64), vec![0, 0, 1, 0, 0]].concat();
    assert_eq!(unpack_index_snapshot(7, 128, &far), None, "a key above 63 bits");
}

#[test]
fn ranges_and_references_are_byte_exact() {
    let ranges = [
        DeletedRange { first: 5, end: 8, task: None },
        DeletedRange { first: 300, end: u64::MAX, task: Some(u32::MAX) },
        DeletedRange { first: 7, end: 7, task: Some(0) },
    ];
    let bytes = pack_ranges(&ranges);
    assert_eq!(bytes[..3], [5, 3, 0]);
    assert_eq!(bytes[bytes.len() - 3..], [7, 0, 1]);
    assert_eq!(unpack_ranges(&bytes).as_deref(), Some(ranges.as_slice()));
    assert_eq!((unpack_ranges(&[]), unpack_ranges(&[5, 3])), (Some(Vec::new()), None));
    let behind = [uint(u64::MAX), vec![1, 0]].concat();
    assert_eq!(unpack_ranges(&behind), None, "it ends above 2^64");
    let task = |n: u64| unpack_ranges(&[vec![0, 1], uint(n)].concat()).map(|ranges| ranges[0].task);
    assert_eq!((task(1), task(1 << 32)), (Some(Some(0)), Some(Some(u32::MAX))));
    assert_eq!(task((1 << 32) + 1), None);
    assert_eq!(pack_reference(300, 2), [0xac, 2, 2]);
    assert_eq!(unpack_reference(&[0xac, 2, 2]), Some((300, 2)));
}

#[test]
fn a_value_is_inline_if_it_is_small_and_plain() {
    let longest = vec![7; INLINE_BYTES_MAX];
    let inline = Inline::pack(&plain(&longest)).unwrap();
    assert_eq!(inline.column(), longest);
    assert!(Inline::pack(&plain(&[7; INLINE_BYTES_MAX + 1])).is_none());
    assert_eq!(Inline::pack(&plain(&[])).unwrap().column(), [0; 0]);
    assert!(Inline::pack(&message("m", "hi")).is_none(), "it has an index");
    let mut foreign = plain(&[1]);
    foreign.codec = Codec::from_tag(7);
    assert!(Inline::pack(&foreign).is_none(), "another codec");
}

#[test]
fn a_value_column_comes_back() {
    let inline = Inline::from_column(&[1, 2]).unwrap();
    let columns = [
        (ValueColumn::Null, ValueRef::Null),
        (ValueColumn::Payload(-3), ValueRef::Integer(-3)),
        (ValueColumn::Inline(inline), ValueRef::Blob(&[1, 2])),
    ];
    for (value, column) in columns {
        assert_eq!(ValueColumn::from_column(column), Some(value));
        assert_eq!(value.column(), column);
        assert!(matches!(value.to_sql().unwrap(), ToSqlOutput::Borrowed(bound) if bound == column));
    }
    let long = vec![0; INLINE_BYTES_MAX + 1];
    for column in [ValueRef::Text(b"a"), ValueRef::Real(1.0), ValueRef::Blob(&long)] {
        assert_eq!(ValueColumn::from_column(column), None);
    }
}
