//! A thread as a pruning reads it: every checkpoint with what it put, in one snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use annals::base::{CheckpointId, Namespace, Payload, ThreadId, WriteValue};
use annals::store::backend::pruned_metadata;
use annals::store::batch::{ListRef, NewWrites};
use annals::store::log::UnprunablePlaces;
use annals::store::operation::{OperationField, OperationValue};
use annals::store::{Pruned, StoreError};
use tokio_postgres::Row;

use super::sql as prune_sql;
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::pack::Unpacker;
use crate::read::points::unpack_consumed;
use crate::read::threads::{StoredFields, fields};
use crate::rows::{Cells, PgChanges, PgContent, PgRecord, VALUE, record};

/// Branch and ordinal.
pub(crate) type Spot = (i64, i64);

/// A namespace: its number, its newest checkpoint, and where its head stands.
pub(crate) struct PrunedNamespace {
    pub(crate) number: i64,
    pub(crate) newest: CheckpointId,
    head: Option<Spot>,
}

/// An item that a checkpoint put; `None` for a deletion.
pub(crate) struct PutItem {
    pub(crate) channel: String,
    pub(crate) position: i64,
    pub(crate) payload: Option<Payload>,
}

/// A checkpoint with what it put.
pub(crate) struct PrunedPoint {
    pub(crate) of: PgRecord,
    pub(crate) changes: PgChanges,
    pub(crate) consumed: Vec<NewWrites>,
    pub(crate) items: Vec<PutItem>,
    /// Channel, first and last position.
    pub(crate) ranges: Vec<(String, i64, i64)>,
    /// The values of the writes of its tasks that no child brought.
    pub(crate) writes: Vec<WriteValue>,
}

/// A branch that leaves a branch of the thread.
struct LeavingBranch {
    thread: i64,
    branch: i64,
    namespace: i64,
    leaves: Spot,
}

/// A thread with all of its checkpoints.
pub(crate) struct PrunedThread {
    pub(crate) number: i64,
    pub(crate) change: i64,
    fields: StoredFields,
    pub(crate) namespaces: BTreeMap<Namespace, PrunedNamespace>,
    pub(crate) points: BTreeMap<Spot, PrunedPoint>,
    leaving: Vec<LeavingBranch>,
    /// Of each channel where its list begins anew, and as which other list.
    begun: BTreeMap<String, BTreeMap<Spot, Option<ListRef>>>,
    /// The namespaces that operations have named.
    named: BTreeSet<Namespace>,
}

impl PrunedThread {
    /// Reads a thread, `None` if it does not exist.
    pub(crate) fn read(backend: &PostgresBackend, id: &ThreadId) -> Result<Option<Self>, StoreError> {
        let statements = [
            prune_sql::THREAD,
            prune_sql::NAMESPACES,
            prune_sql::LEAVING,
            prune_sql::FIELDS,
            prune_sql::CHECKPOINTS,
            prune_sql::ITEMS,
            prune_sql::RANGE_DELETES,
            prune_sql::TASK_WRITES,
        ];
        let params = [Param::Text(Some(id.as_str().to_owned()))];
        let queries = statements.iter().map(|sql| PgQuery::new(sql, params.clone())).collect();
        let answers = backend.client.read(queries, Together::Snapshot)?;
        let Some(row) = answers[0].first() else { return Ok(None) };
        let mut cells = Cells::of(row);
        let mut thread = Self {
            number: cells.next()?,
            change: cells.next()?,
            fields: fields(cells.next()?)?,
            namespaces: BTreeMap::new(),
            points: BTreeMap::new(),
            leaving: Vec::new(),
            begun: BTreeMap::new(),
            named: BTreeSet::new(),
        };
        answers[1].iter().try_for_each(|row| thread.add_namespace(row))?;
        answers[2].iter().try_for_each(|row| thread.add_leaving(row))?;
        for row in &answers[3] {
            let field = Cells::of(row).next()?;
            thread.named.insert(Unpacker::new(field, "operation_change.field").namespace()?);
        }
        let mut items: HashMap<Spot, Vec<PutItem>> = HashMap::new();
        for row in &answers[5] {
            let mut cells = Cells::of(row);
            let (spot, channel, position) = ((cells.next()?, cells.next()?), cells.next()?, cells.next()?);
            let payload = cells.payload()?;
            items.entry(spot).or_default().push(PutItem { channel, position, payload });
        }
        answers[4].iter().try_for_each(|row| thread.add_point(row, &mut items))?;
        answers[6].iter().try_for_each(|row| thread.add_range(row))?;
        for row in &answers[7] {
            let mut cells = Cells::of(row);
            let spot = (cells.next()?, cells.next()?);
            let mut value = Unpacker::new(cells.next()?, "task_write.value");
            value.text()?;
            let value = value.write_value(&mut Unpacker::payload)?;
            thread.points.get_mut(&spot).into_iter().for_each(|point| point.writes.push(value.clone()));
        }
        Ok(Some(thread))
    }

    fn add_namespace(&mut self, row: &Row) -> Result<(), StoreError> {
        let mut cells = Cells::of(row);
        let (path, number, newest) = (cells.namespace()?, cells.next()?, cells.checkpoint()?);
        let head = cells.next::<Option<i64>>()?.zip(cells.next::<Option<i64>>()?);
        self.namespaces.insert(path, PrunedNamespace { number, newest, head });
        Ok(())
    }

    fn add_leaving(&mut self, row: &Row) -> Result<(), StoreError> {
        let mut cells = Cells::of(row);
        let (thread, branch, namespace) = (cells.next()?, cells.next()?, cells.next()?);
        let leaves = (cells.next()?, cells.next::<i64>()? - 1);
        self.leaving.push(LeavingBranch { thread, branch, namespace, leaves });
        Ok(())
    }

    fn add_point(&mut self, row: &Row, items: &mut HashMap<Spot, Vec<PutItem>>) -> Result<(), StoreError> {
        let mut cells = Cells::of(row);
        let (of, changes) = (record(&mut cells)?, PgChanges::read(&mut cells)?);
        let spot = (of.place.branch, of.place.ordinal);
        let items = items.remove(&spot).unwrap_or_default();
        let item = |channel: &str, position: i64| {
            let found = items.iter().find(|item| item.channel == channel && item.position == position);
            found.and_then(|item| item.payload.clone())
        };
        let consumed = cells.next::<Option<&[u8]>>()?;
        let consumed = consumed.map_or(Ok(Vec::new()), |packed| unpack_consumed(packed, &changes, item))?;
        let point = PrunedPoint { of, changes, consumed, items, ranges: Vec::new(), writes: Vec::new() };
        self.points.insert(spot, point);
        Ok(())
    }

    fn add_range(&mut self, row: &Row) -> Result<(), StoreError> {
        let mut cells = Cells::of(row);
        let (spot, channel) = ((cells.next()?, cells.next()?), cells.next::<String>()?);
        let (first, last, reference) = (cells.next()?, cells.next()?, cells.next::<Option<&[u8]>>()?);
        if (first, last) == (0, i64::MAX) {
            let list =
                reference.map(|packed| Unpacker::new(packed, "range_delete.reference").reference()).transpose()?;
            self.begun.entry(channel.clone()).or_default().insert(spot, list);
        }
        self.points.get_mut(&spot).into_iter().for_each(|point| point.ranges.push((channel.clone(), first, last)));
        Ok(())
    }

    /// Returns the checkpoints of a namespace, by its number.
    fn of_namespace(&self, number: i64) -> impl Iterator<Item = &PrunedPoint> {
        self.points.values().filter(move |point| point.of.namespace == number)
    }

    fn spot_of(&self, namespace: &Namespace, id: &CheckpointId) -> Option<Spot> {
        let number = self.namespaces.get(namespace)?.number;
        let point = self.of_namespace(number).find(|point| point.of.record.point.checkpoint == *id)?;
        Some((point.of.place.branch, point.of.place.ordinal))
    }

    /// Returns the places that cannot be pruned once the namespaces `without` are gone; of these, those on which
    /// something else rests.
    pub(crate) fn held(&self, without: &BTreeSet<&Namespace>) -> BTreeSet<Spot> {
        let is_gone = |namespace: &Namespace| !namespace.is_root() && without.contains(namespace);
        let gone = self.namespaces.iter().filter(|(namespace, _)| is_gone(namespace));
        let gone: BTreeSet<i64> = gone.map(|(_, of)| of.number).collect();
        let mut held: BTreeSet<Spot> = BTreeSet::new();
        for (namespace, of) in &self.namespaces {
            if !gone.contains(&of.number) {
                held.extend(of.head);
            } else if self.is_needed(namespace, of) {
                held.extend(self.spot_of(namespace, &of.newest));
            }
        }
        let mut lasts: BTreeMap<i64, i64> = BTreeMap::new();
        let kept = self.points.values().filter(|point| !gone.contains(&point.of.namespace));
        kept.for_each(|point| _ = lasts.insert(point.of.place.branch, point.of.place.ordinal));
        held.extend(lasts);
        for branch in &self.leaving {
            let is_own = branch.thread == self.number;
            if !is_own || !gone.contains(&branch.namespace) && branch.branch != branch.leaves.0 {
                held.insert(branch.leaves);
            }
        }
        held.extend(self.referenced(&gone).filter_map(|of| self.spot_of(&of.namespace, &of.checkpoint)));
        for (field, value) in &self.fields {
            if let (OperationField::Branch(_), OperationValue::Checkpoint(id)) = (field, value) {
                held.extend(self.spot_of(&Namespace::root(), id));
            }
        }
        held
    }

    /// Returns the lists that kept checkpoints reference, but for those of namespaces that are gone. The rows of a
    /// pruned checkpoint stay, and count as far as a kept one of its lineage shows them.
    fn referenced(&self, gone: &BTreeSet<i64>) -> impl Iterator<Item = &ListRef> {
        let own = self.leaving.iter().filter(|branch| branch.thread == self.number);
        let parents: HashMap<i64, Spot> = own.map(|branch| (branch.branch, branch.leaves)).collect();
        let kept = self.points.iter().filter(|(_, of)| !of.of.record.pruned && !gone.contains(&of.of.namespace));
        let kept: Vec<Spot> = kept.map(|(spot, _)| *spot).collect();
        let mut found: BTreeMap<(&str, Spot), &ListRef> = BTreeMap::new();
        for (channel, begun) in self.begun.iter().filter(|(_, begun)| begun.values().any(Option::is_some)) {
            let (mut wanted, mut seen) = (kept.clone(), BTreeSet::new());
            while let Some(spot) = wanted.pop() {
                match begun.range((spot.0, i64::MIN)..=spot).next_back() {
                    Some((at, list)) => found.extend(list.as_ref().map(|list| ((&**channel, *at), list))),
                    None => wanted.extend(parents.get(&spot.0).filter(|parent| seen.insert(**parent))),
                }
            }
        }
        found.into_values()
    }

    /// Returns whether a namespace stays whatever a plan says: the thread begins with it, an operation names it, it
    /// begins with a checkpoint of another namespace, or one of its checkpoints states what model calls used.
    fn is_needed(&self, namespace: &Namespace, of: &PrunedNamespace) -> bool {
        let first = |number: i64| self.of_namespace(number).map(|point| point.of.record.seq).min();
        let root = self.namespaces.get(&Namespace::root()).and_then(|root| first(root.number));
        let states_or_forks = |point: &PrunedPoint| {
            let record = &point.of.record;
            let from = record.forked_from.as_ref().filter(|from| from.thread == record.point.thread);
            from.is_some_and(|from| from.namespace != *namespace)
                || record.pruned && record.metadata.is_some()
                || pruned_metadata(record.metadata.as_deref()).is_some()
        };
        root.is_none_or(|root| first(of.number).is_none_or(|first| root >= first))
            || self.named.contains(namespace)
            || self.of_namespace(of.number).any(states_or_forks)
    }

    /// Returns the namespaces that still end with the given checkpoints, and on which nothing rests but one another.
    pub(crate) fn removable(&self, namespaces: &[(Namespace, CheckpointId)]) -> BTreeSet<&Namespace> {
        let is_same = |(namespace, last): &&(Namespace, CheckpointId)| {
            !namespace.is_root() && self.namespaces.get(namespace).is_some_and(|of| of.newest == *last)
        };
        let wanted = namespaces.iter().filter(is_same);
        let mut found: BTreeSet<&Namespace> =
            wanted.filter_map(|(namespace, _)| Some(self.namespaces.get_key_value(namespace)?.0)).collect();
        loop {
            let (held, before) = (self.held(&found), found.len());
            let is_held = |number| {
                self.of_namespace(number).any(|point| held.contains(&(point.of.place.branch, point.of.place.ordinal)))
            };
            found.retain(|namespace| !self.namespaces.get(*namespace).is_some_and(|of| is_held(of.number)));
            if found.len() == before {
                return found;
            }
        }
    }
}

impl PrunedPoint {
    /// Returns the number and the bytes of the values that it put, and of the writes of its tasks.
    pub(crate) fn content(&self) -> Result<Pruned, StoreError> {
        let mut total = Pruned::default();
        let mut add = |payload: &Payload| {
            total.values += 1;
            total.bytes += payload.len() as u64;
        };
        for (_, _, kind, content) in self.changes.each().filter(|(_, _, kind, _)| *kind == VALUE) {
            if let annals::store::record::ChannelValue::Value(payload) = PgContent::unpack(kind, content)?.value {
                add(&payload);
            }
        }
        self.items.iter().filter_map(|item| item.payload.as_ref()).for_each(&mut add);
        let consumed = self.consumed.iter().flat_map(|of| &of.writes).map(|write| &write.value);
        for value in self.writes.iter().chain(consumed) {
            value.payloads().iter().for_each(&mut add);
        }
        Ok(total)
    }
}

/// Returns places as the engine has them.
pub(crate) fn places(spots: BTreeSet<Spot>) -> UnprunablePlaces {
    spots.into_iter().map(|(branch, ordinal)| (branch.cast_unsigned(), ordinal.cast_unsigned())).collect()
}
