//! The difference between a checkpoint and its parent, as the log stores it.
//!
//! Invariant: what is equal to the parent is not stored. *Absent:* reading the parent; the caller hands its state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use annals::store::StoreError;
use annals::store::batch::{Change, ChangeValue, Data, Payload, Seen, WriteRef};
use annals_base::Encoded;

use crate::list::{SlotOp, Wanted, change as list_change, matched};
use crate::notes::CHANNEL;
use crate::state::{ChannelDigest, ContentDigest, DigestState, Exception};
use crate::typed::{Digest, anonymous, array_items, digest, is_list, item_payload, payload};
use crate::version::VersionForm;
use crate::{MSGPACK, NewValue, Result, SaverCheckpoint, SaverError, SaverItem, SaverVersion, StoredValue, Typed};

/// Values up to this size are stored again rather than as a reference to the write that brought them.
const REFERENCE_BYTES_MIN: usize = 64;

/// The values that writes of the parent's tasks brought.
#[derive(Debug, Default)]
pub(crate) struct WrittenValues {
    pub(crate) ones: HashMap<Digest, WriteRef>,
    pub(crate) items: HashMap<Digest, WriteRef>,
    /// Messages without an id that are not stored yet, with the places of their writes. A reducer gives a message its
    /// id after it was written: the write is stored with the id then, and says that it had none.
    pub(crate) anonymous: HashMap<Digest, (WriteRef, WritePlace)>,
}

/// The place of a value among new writes: the task, the write, and the part of its list.
pub(crate) type WritePlace = (usize, usize, usize);

/// The changes of a checkpoint against its parent.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) changes: Vec<Change>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) state: DigestState,
    /// The channels that change and hold something, sorted.
    pub(crate) updated: Vec<String>,
    pub(crate) form: VersionForm,
    /// New writes whose messages are stored with the id that they have in the checkpoint.
    pub(crate) named: Vec<(WritePlace, Payload)>,
}

/// The new content of a channel, before it has a version.
struct NewContent {
    content: ContentDigest,
    value: ContentValue,
}

enum ContentValue {
    Empty,
    /// That of the parent.
    Same,
    One(Typed),
    Items(Vec<SlotOp<Typed>>),
}

/// Compares a checkpoint with its parent, whose values `values_of` reads if they are needed.
pub(crate) fn difference(
    parent: &DigestState,
    new: &SaverCheckpoint,
    written: &WrittenValues,
    values_of: &mut dyn FnMut() -> Result<HashMap<Arc<str>, StoredValue>>,
) -> Result<Difference> {
    let versions: BTreeMap<&str, &SaverVersion> =
        new.versions.iter().map(|(name, version)| (&**name, version)).collect();
    let mut values: BTreeMap<&str, &NewValue> = BTreeMap::new();
    for (name, value) in &new.values {
        if values.insert(name, value).is_some() {
            return Err(SaverError::invalid("channel_values", format!("channel {name:?} comes twice")));
        }
    }
    if versions.contains_key(CHANNEL) || values.contains_key(CHANNEL) {
        return Err(SaverError::invalid("channel_values", format!("the name {CHANNEL:?} is reserved")));
    }
    let form = form_of(new);
    let (changes, named, state) = (Vec::new(), Vec::new(), parent.clone());
    let mut builder = Builder { parent, written, values_of, changes, named, state };
    let known = parent.channels.keys().map(|name| &**name).filter(|name| *name != CHANNEL);
    let names: BTreeSet<&str> = known.chain(versions.keys().copied()).chain(values.keys().copied()).collect();
    for name in names {
        let number = versions.get(name).and_then(|version| form.number(version));
        builder.channel(name, values.get(name).copied(), number)?;
    }
    let held = |change: &&Change| !matches!(change.value, ChangeValue::Empty);
    let updated = builder.changes.iter().filter(held).map(|change| change.channel.to_string()).collect();
    let seen = seen_changes(parent, new, form);
    let exceptions = exceptions(&builder.state, parent, new, &versions, form);
    builder.exceptions(exceptions)?;
    let Builder { changes, mut state, named, .. } = builder;
    for seen in &seen {
        state.seen.insert(Arc::clone(&seen.node), seen.versions.iter().cloned().collect());
    }
    Ok(Difference { changes, seen, state, updated, form, named })
}

fn form_of(new: &SaverCheckpoint) -> VersionForm {
    let seen = new.seen.iter().flat_map(|(_, versions)| versions);
    let is_integer = |(_, version): &(String, SaverVersion)| matches!(version, SaverVersion::Integer(_));
    if new.versions.iter().chain(seen).any(is_integer) { VersionForm::Integer } else { VersionForm::Text }
}

/// Returns the nodes whose numbers differ from those at the parent.
fn seen_changes(parent: &DigestState, new: &SaverCheckpoint, form: VersionForm) -> Vec<Seen> {
    let mut changed = Vec::new();
    for (node, versions) in &new.seen {
        let numbers: Option<BTreeMap<Arc<str>, u64>> =
            versions.iter().map(|(channel, version)| Some((channel.as_str().into(), form.number(version)?))).collect();
        if let Some(numbers) = numbers
            && parent.seen.get(&**node) != Some(&numbers)
        {
            changed.push(Seen::new(node.as_str(), numbers.into_iter().collect()));
        }
    }
    changed
}

/// Returns what the numbers do not say, in the order of the parent's exceptions; new ones come last.
fn exceptions(
    state: &DigestState,
    parent: &DigestState,
    new: &SaverCheckpoint,
    versions: &BTreeMap<&str, &SaverVersion>,
    form: VersionForm,
) -> Vec<Exception> {
    let mut found: BTreeMap<(bool, String), Exception> = BTreeMap::new();
    let known = state.channels.keys().map(|name| &**name).filter(|name| *name != CHANNEL);
    for name in known.chain(versions.keys().copied()).collect::<BTreeSet<&str>>() {
        let of_log = state.channels.get(name).map(|channel| form.version(channel.version));
        if of_log.as_ref() != versions.get(name).copied() {
            let version = versions.get(name).map(|version| (*version).clone());
            found.insert((false, name.to_owned()), Exception::Version(name.to_owned(), version));
        }
    }
    for (node, versions) in &new.seen {
        if !versions.iter().all(|(_, version)| form.number(version).is_some()) {
            let mut versions = versions.clone();
            versions.sort_by(|a, b| a.0.cmp(&b.0));
            found.insert((true, node.clone()), Exception::Seen(node.clone(), Some(versions)));
        }
    }
    let given: BTreeSet<&str> = new.seen.iter().map(|(node, _)| &**node).collect();
    for node in parent.seen.keys().filter(|node| !given.contains(&***node)) {
        found.insert((true, node.to_string()), Exception::Seen(node.to_string(), None));
    }
    let key = |exception: &Exception| match exception {
        Exception::Version(name, _) => (false, name.clone()),
        Exception::Seen(name, _) => (true, name.clone()),
    };
    let mut ordered: Vec<Exception> =
        parent.exceptions.iter().filter_map(|exception| found.remove(&key(exception))).collect();
    ordered.extend(found.into_values());
    ordered
}

struct Builder<'a> {
    parent: &'a DigestState,
    written: &'a WrittenValues,
    values_of: &'a mut dyn FnMut() -> Result<HashMap<Arc<str>, StoredValue>>,
    changes: Vec<Change>,
    named: Vec<(WritePlace, Payload)>,
    state: DigestState,
}

impl Builder<'_> {
    /// Adds the change of a channel, if it changes. `number` is the number of its version, if one says it.
    fn channel(&mut self, name: &str, value: Option<&NewValue>, number: Option<u64>) -> Result<()> {
        let old = self.parent.channels.get(name);
        let new = self.content(name, value)?;
        let before = old.map_or(0, |channel| channel.version);
        let is_changed = match (&new.value, old) {
            (ContentValue::Same, _) => false,
            (ContentValue::Items(ops), Some(ChannelDigest { content: ContentDigest::List(_), .. })) => !ops.is_empty(),
            (_, Some(old)) => old.content != new.content,
            (_, None) => true,
        };
        let version = match number {
            Some(number) if number > before => number,
            _ if is_changed => before + 1,
            _ => return Ok(()),
        };
        let value = match new.value {
            ContentValue::Empty => ChangeValue::Empty,
            ContentValue::One(value) => ChangeValue::Value(self.data(&value, false)?),
            ContentValue::Same => self.same(name, &new.content)?,
            ContentValue::Items(ops) => {
                let change = |op: SlotOp<Typed>| Ok(op.map(|value| self.data(&value, true))?.into_change());
                ChangeValue::Items(ops.into_iter().map(change).collect::<Result<_>>()?)
            }
        };
        self.changes.push(Change::new(name, version, value));
        self.state.channels.insert(name.into(), ChannelDigest { version, content: new.content });
        Ok(())
    }

    fn content(&mut self, name: &str, value: Option<&NewValue>) -> Result<NewContent> {
        let old = self.parent.channels.get(name).map(|channel| &channel.content);
        let slots = old.map(ContentDigest::slots).unwrap_or_default();
        match value {
            None => Ok(NewContent { content: ContentDigest::Empty, value: ContentValue::Empty }),
            Some(NewValue::Same) => match old {
                Some(content) if *content != ContentDigest::Empty => {
                    Ok(NewContent { content: content.clone(), value: ContentValue::Same })
                }
                _ => {
                    let reason = format!("channel {name:?} is the same as in the parent, where it holds nothing");
                    Err(SaverError::invalid("channel_values", reason))
                }
            },
            Some(NewValue::Typed(value)) => {
                let is_list_already = matches!(old, Some(ContentDigest::List(_)));
                let items = array_items(value).filter(|items| is_list_already || is_list(value, items));
                let Some(items) = items else {
                    let content = ContentDigest::One(digest(&value.tag, &value.bytes));
                    return Ok(NewContent { content, value: ContentValue::One(value.clone()) });
                };
                let digests: Vec<Digest> = items.iter().map(|item| digest(MSGPACK, item)).collect();
                let (ops, slots) = list_change(slots, &matched(slots, &digests));
                let typed = |op: SlotOp<usize>| op.map(|index| Ok(Typed::msgpack(items[index].to_vec())));
                let ops = ops.into_iter().map(typed).collect::<Result<_>>()?;
                Ok(NewContent { content: ContentDigest::List(Arc::new(slots)), value: ContentValue::Items(ops) })
            }
            Some(NewValue::Items(items)) => self.items(name, items),
        }
    }

    /// Returns the content of a list that is given item by item.
    fn items(&mut self, name: &str, items: &[SaverItem]) -> Result<NewContent> {
        let old = self.parent.channels.get(name).map(|channel| channel.content.slots()).unwrap_or_default();
        let (mut wanted, mut next) = (Vec::with_capacity(items.len()), 0);
        for item in items {
            wanted.push(match item {
                SaverItem::Same(indexes) => {
                    let indexes = indexes.start as usize..indexes.end as usize;
                    if indexes.start < next || indexes.start > indexes.end || indexes.end > old.len() {
                        let reason = format!(
                            "items {indexes:?} of channel {name:?} are not indexes of the {} items of the parent, in \
                             ascending order",
                            old.len()
                        );
                        return Err(SaverError::invalid("channel_values", reason));
                    }
                    next = indexes.end;
                    Wanted::Old(indexes)
                }
                SaverItem::New(value) => Wanted::New(digest(&value.tag, &value.bytes)),
            });
        }
        let (ops, slots) = list_change(old, &wanted);
        // The index of the first item of each element.
        let begins = wanted.iter().scan(0, |end, wanted| {
            let begin = *end;
            *end += wanted.len();
            Some(begin)
        });
        let begins: Vec<usize> = begins.collect();
        // The values of items that stay are not looked at.
        let mut stored: Option<Vec<Arc<Typed>>> = None;
        let mut value = |index: usize| {
            let at = begins.partition_point(|begin| *begin <= index) - 1;
            let indexes = match &items[at] {
                SaverItem::New(value) => return Ok(value.clone()),
                SaverItem::Same(indexes) => indexes,
            };
            let stored = match &mut stored {
                Some(stored) => stored,
                None => stored.insert(self.stored_items(name, old.len())?),
            };
            Ok((*stored[indexes.start as usize + index - begins[at]]).clone())
        };
        let ops = ops.into_iter().map(|op| op.map(&mut value)).collect::<Result<_>>()?;
        Ok(NewContent { content: ContentDigest::List(Arc::new(slots)), value: ContentValue::Items(ops) })
    }

    /// Reads the items of the parent's list.
    fn stored_items(&mut self, name: &str, count: usize) -> Result<Vec<Arc<Typed>>> {
        match (self.values_of)()?.remove(name) {
            Some(StoredValue::Items(items)) if items.len() == count => Ok(items),
            _ => Err(SaverError::invalid("channel_values", format!("the parent has no list of channel {name:?}"))),
        }
    }

    /// Returns the change of a channel whose version rises and whose value stays.
    fn same(&mut self, name: &str, content: &ContentDigest) -> Result<ChangeValue> {
        if matches!(content, ContentDigest::List(_)) {
            return Ok(ChangeValue::Items(Vec::new()));
        }
        match (self.values_of)()?.remove(name) {
            Some(StoredValue::Typed(value)) => Ok(ChangeValue::Value(self.data(&value, false)?)),
            _ => Err(SaverError::invalid("channel_values", format!("the parent has no value of channel {name:?}"))),
        }
    }

    /// Returns the bytes of a value, or the write that has them.
    fn data(&mut self, value: &Typed, is_item: bool) -> Result<Data> {
        let written = if is_item { &self.written.items } else { &self.written.ones };
        if value.bytes.len() >= REFERENCE_BYTES_MIN
            && let Some(write) = written.get(&digest(&value.tag, &value.bytes))
        {
            return Ok(Data::OfWrite(write.clone()));
        }
        if !is_item {
            return Ok(Data::New(payload(value)?));
        }
        let item = item_payload(value)?;
        let without_id = if self.written.anonymous.is_empty() { None } else { anonymous(item.as_ref())? };
        let found = without_id.and_then(|value| self.written.anonymous.get(&digest(&value.tag, &value.bytes)));
        match found.filter(|(_, place)| self.named.iter().all(|(other, _)| other != place)) {
            Some((write, place)) => {
                self.named.push((*place, item));
                Ok(Data::OfWrite(write.clone()))
            }
            None => Ok(Data::New(item)),
        }
    }

    /// Adds the change of the channel of exceptions, if they differ from those of the parent.
    fn exceptions(&mut self, exceptions: Vec<Exception>) -> Result<()> {
        if exceptions == self.parent.exceptions {
            return Ok(());
        }
        let encoded = exceptions.iter().map(|exception| Encoded::encode(&exception.to_value()));
        let encoded: Vec<Encoded> = encoded.collect::<std::result::Result<_, _>>().map_err(StoreError::from)?;
        let digests: Vec<Digest> = encoded.iter().map(|item| digest(MSGPACK, &item.bytes)).collect();
        let old = self.parent.channels.get(CHANNEL);
        let slots = old.map(|channel| channel.content.slots()).unwrap_or_default();
        let (ops, slots) = list_change(slots, &matched(slots, &digests));
        let change = |op: SlotOp<usize>| {
            let op = op.map(|index| Ok(Data::New(Payload::new(encoded[index].bytes.clone()))))?;
            Ok(op.into_change())
        };
        let items = ops.into_iter().map(change).collect::<Result<_>>()?;
        let version = old.map_or(0, |channel| channel.version) + 1;
        self.changes.push(Change::new(CHANNEL, version, ChangeValue::Items(items)));
        self.state
            .channels
            .insert(CHANNEL.into(), ChannelDigest { version, content: ContentDigest::List(Arc::new(slots)) });
        self.state.exceptions = exceptions;
        Ok(())
    }
}
