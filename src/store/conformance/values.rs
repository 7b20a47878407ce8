//! Values come back byte for byte, whatever their size and wherever they stand.

use super::build::*;
use crate::base::Codec;
use crate::limits::{BLOB_BYTES_MIN, INLINE_BYTES_MAX, STEP_MAX};

/// Returns bytes that do not compress, and that differ from seed to seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = IdSource::from_seed(seed);
    std::iter::repeat_with(|| random.random().to_le_bytes()).flatten().take(len).collect()
}

/// Stores each payload as a value, as an item and as writes, and compares the read values.
fn round_trip(backend: &dyn Log, place: &CasePlace<'_>, payloads: &[Payload]) {
    let mut draft = begin(1).tasks(&["node"]);
    for (n, payload) in payloads.iter().enumerate() {
        // Only items and writes have an index.
        let plain = without_index(payload);
        draft = draft.change(&format!("v{n:03}"), 1, ChangeValue::Value(Data::New(plain)));
    }
    let positions = (0..).zip(payloads).map(|(position, payload)| put_payload(position, payload.clone()));
    place.add_at(None, draft.items("list", 1, positions.collect()));
    let one = |(index, payload): (i32, &Payload)| {
        let value = WriteValue::One(payload.clone());
        NewWrite::new(index, "list", value)
    };
    let mut new: Vec<_> = (0..).zip(payloads).map(one).collect();
    let last = i32::try_from(new.len()).unwrap_or(i32::MAX);
    new.push(NewWrite::new(last, "list", WriteValue::Items(payloads.to_vec())));
    commit(backend, &place.pending(1, writes(1, task(1), "p", new.clone())));
    let taken = (0..).zip(payloads).map(|(part, _)| put_of(u64::from(part), task(1), last, part));
    place.add(on(2, 1).items("list", 2, taken.collect()));
    for (n, payload) in payloads.iter().enumerate() {
        let found = place.channel(2, &format!("v{n:03}")).map(|channel| channel.value);
        let plain = without_index(payload);
        assert!(found == Some(ChannelValue::Value(plain)), "value {n} of {} bytes differs", payload.len());
    }
    for at in [1, 2] {
        let found: Vec<_> = items(backend, &place.point(at), "list", ItemRange::All);
        let found: Vec<_> = found.into_iter().map(|(_, _, payload)| payload).collect();
        let first = payloads.iter().zip(&found).position(|(a, b)| a != b);
        assert!(found == payloads, "items at checkpoint {at} differ, the first is {first:?}");
    }
    let found: Vec<_> = place.writes(1).into_iter().map(|write| write.value).collect();
    assert!(found == new.into_iter().map(|write| write.value).collect::<Vec<_>>(), "writes differ");
}

fn without_index(payload: &Payload) -> Payload {
    Payload::new(payload.data.clone()).with_codec(payload.codec)
}

pub(super) fn sizes(backend: &dyn Log) {
    let lens = [0, 1, 2, 23, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 100, BLOB_BYTES_MIN - 1, BLOB_BYTES_MIN];
    let lens = lens.into_iter().chain([BLOB_BYTES_MIN + 1, 10 << 10, 1 << 20]);
    let mut payloads: Vec<_> = (1..).zip(lens).map(|(seed, len)| bytes(noise(seed, len))).collect();
    payloads.push(bytes("naïve – 你好 – 🐝 – e\u{301} – \0 – end"));
    payloads.push(bytes([0xff, 0xfe, 0, 0x80]));
    round_trip(backend, &root_of(backend, "sizes, 大小"), &payloads);
}

pub(super) fn item_fields(backend: &dyn Log) {
    let full = message("id-1", "what was said");
    let with = |fill: fn(&mut ItemIndex)| {
        let mut index = ItemIndex::default();
        fill(&mut index);
        bytes("rest").with_index(index)
    };
    let mut without_rest = full.clone();
    without_rest.data.clear();
    let payloads = [
        full,
        with(|_| ()),
        with(|index| index.id = Some("only id".into())),
        with(|index| index.kind = Some("tool".into())),
        with(|index| index.name = Some("only name".into())),
        with(|index| index.tool_calls = Some("[]".into())),
        with(|index| index.text = Some("only text".into())),
        with(|index| (index.id, index.text) = (Some("".into()), Some(String::new()))),
        with(|index| index.input_tokens = Some(1)),
        with(|index| index.output_tokens = Some(0)),
        message("long", &"long text, ünïcödé 🐝. ".repeat(5_000)),
        without_rest,
        bytes("no index"),
    ];
    round_trip(backend, &root_of(backend, "fields"), &payloads);
}

pub(super) fn foreign(backend: &dyn Log) {
    let codec = |tag| Codec::Foreign(tag);
    let payloads = [
        bytes("").with_codec(codec(1)),
        bytes([0xc1, 0xc1]).with_codec(codec(2)),
        bytes(noise(1, 3_000)).with_codec(codec(255)),
        message("m", "text of a foreign message").with_codec(codec(7)),
        // The same bytes under another codec are another value.
        bytes(noise(1, 3_000)).with_codec(codec(8)),
        bytes(noise(1, 3_000)),
    ];
    round_trip(backend, &root_of(backend, "foreign"), &payloads);
}

pub(super) fn shared(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "shared a"), root_of(backend, "shared b"));
    let large = noise(5, 10 << 10);
    for place in [&a, &b] {
        let draft = begin(1).value("x", 1, &large).value("y", 1, &large);
        place.add_at(None, draft.items("list", 1, vec![put(0, &large), put(1, &large)]));
    }
    a.add(on(2, 1).value("x", 2, "small").items("list", 2, vec![put(0, "small")]));
    let value = |place: &CasePlace<'_>, n, channel| place.channel(n, channel).map(|channel| channel.value);
    let whole = Some(ChannelValue::Value(bytes(&large)));
    assert!(value(&a, 2, "y") == whole && value(&b, 1, "x") == whole && value(&a, 1, "x") == whole);
    let found = items(backend, &a.point(2), "list", ItemRange::All);
    assert_eq!(found[0].2, bytes("small"));
    assert!(found[1].2 == bytes(&large));
}

pub(super) fn checkpoint_fields(backend: &dyn Log) {
    use crate::store::record::Source;
    let place = root_of(backend, "checkpoint fields");
    let sources = [Source::Input, Source::Loop, Source::Update, Source::Fork];
    for (n, source) in (1..).zip(sources) {
        let mut draft = next(n).in_full();
        draft.0.source = source;
        draft.0.step = [-1, 0, STEP_MAX, -STEP_MAX][usize::try_from(n).unwrap_or(1) - 1];
        let new = draft.0.clone();
        place.add_at((n > 1).then(|| n - 1), draft);
        let record = place.record(n);
        assert_eq!(record.point.checkpoint, id(n));
        assert_eq!((record.step, record.source, record.created_at), (new.step, source, new.created_at));
        assert_eq!((record.run, record.metadata), (new.run, new.metadata));
        assert_eq!((record.tasks, record.parents), (new.tasks, new.parents));
        let head = backend.head(&place.thread, &place.namespace).expect("reads the head");
        assert_eq!(head, Some(place.record(n)));
        assert_eq!(backend.state(&place.point(n)).expect("reads").checkpoint, place.record(n));
    }
}
