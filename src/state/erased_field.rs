//! A field without the type of its state: the work of a schema on a value that it has found, and the migration of
//! stored values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::internal::panic_text;
use crate::base::{Encoded, ListDelta, Payload, PayloadRef, Value, WriteValue, decode_bytes};
use crate::channel::ChannelEffect;

use super::error::StateError;
use super::field::{FieldOps, StoredItems};
use super::layout::StateRef;
use super::writes::BoxWrite;

/// Brings a stored value over to the present type of its channel.
type Migration = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The migrations of a schema, by the number of the field.
#[derive(Default)]
pub(super) struct Migrations(Vec<(usize, Migration)>);

impl Migrations {
    pub(super) fn push(&mut self, field: usize, migration: Migration) {
        self.0.push((field, migration));
    }
}

/// A field of a schema.
#[derive(Clone, Copy)]
pub(super) struct ErasedField<'a> {
    pub(super) number: usize,
    pub(super) name: &'a Arc<str>,
    pub(super) ops: &'a dyn FieldOps,
    pub(super) migrations: &'a Migrations,
}

impl ErasedField<'_> {
    fn migrates(self) -> bool {
        self.migrations.0.iter().any(|(known, _)| *known == self.number)
    }

    /// Brings a stored value over, if there is a way.
    fn migrated(self, stored: PayloadRef<'_>) -> Result<Option<Payload>, StateError> {
        let known = self.migrations.0.iter().find(|(known, _)| *known == self.number);
        let Some((_, migration)) = known else { return Ok(None) };
        let failed = |reason| StateError::Migration { channel: Arc::clone(self.name), reason };
        let value = decode_bytes::<Value>(stored.codec, stored.data).map_err(|error| failed(error.to_string()))?;
        let run = AssertUnwindSafe(|| migration(value));
        let value = catch_unwind(run).unwrap_or_else(|panic| Err(panic_text(&*panic)));
        let encoded = Encoded::encode(&value.map_err(failed)?).map_err(|error| failed(error.to_string()))?;
        Ok(Some(encoded.into()))
    }

    fn brought(self, stored: &Payload) -> Result<Payload, StateError> {
        Ok(self.migrated(stored.as_ref())?.unwrap_or_else(|| stored.clone()))
    }

    fn all_brought(self, stored: &[Payload]) -> Result<Vec<Payload>, StateError> {
        stored.iter().map(|item| self.brought(item)).collect()
    }

    /// Calls `with` on a stored value; if the value does not fit, once more on the migrated one.
    fn fitting(
        self,
        stored: PayloadRef<'_>,
        with: &mut dyn FnMut(PayloadRef<'_>) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        match with(stored) {
            Err(StateError::Misfit { channel, expected, stored: found, source }) => match self.migrated(stored)? {
                Some(payload) => with(payload.as_ref()),
                None => Err(StateError::Misfit { channel, expected, stored: found, source }),
            },
            done => done,
        }
    }

    pub(super) fn load(self, value: &mut dyn Any, stored: PayloadRef<'_>) -> Result<(), StateError> {
        self.fitting(stored, &mut |stored| self.ops.load(self.name, value, stored))
    }

    /// Returns a place for the stored items of a list.
    pub(super) fn items(self) -> Result<Box<dyn StoredItems>, StateError> {
        Ok(self.ops.lists().ok_or_else(|| self.no_list("a list of items"))?.items())
    }

    pub(super) fn add_item(
        self,
        items: &mut dyn StoredItems,
        position: u64,
        stored: PayloadRef<'_>,
    ) -> Result<(), StateError> {
        self.fitting(stored, &mut |stored| items.add(self.name, position, stored))
    }

    pub(super) fn decode_write(self, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        match self.ops.decode_write(self.name, stored) {
            Err(StateError::Misfit { .. }) if self.migrates() => {}
            done => return done,
        }
        let brought = match stored {
            WriteValue::One(payload) => WriteValue::One(self.brought(payload)?),
            WriteValue::Items(items) => WriteValue::Items(self.all_brought(items)?),
            WriteValue::Null | WriteValue::Delta(_) => stored.clone(),
        };
        self.ops.decode_write(self.name, &brought)
    }

    pub(super) fn decode_delta(
        self,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError> {
        let lists = self.ops.lists().ok_or_else(|| self.no_list("a delta of a list"))?;
        match lists.decode_delta(self.name, delta, base, returns) {
            Err(StateError::Misfit { .. }) if self.migrates() => {}
            done => return done,
        }
        let mut brought = delta.clone();
        brought.items = self.all_brought(&delta.items)?;
        lists.decode_delta(self.name, &brought, base, returns)
    }

    pub(super) fn encode_item(self, value: &dyn Any, position: u64) -> Result<Payload, StateError> {
        let lists = self.ops.lists().ok_or_else(|| self.no_list("an item of a list"))?;
        lists.encode_item(self.name, value, position)
    }

    pub(super) fn update(
        self,
        value: &mut dyn Any,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        let run = AssertUnwindSafe(|| self.ops.update(self.name, value, present, writes));
        let effect = catch_unwind(run).unwrap_or_else(|panic| {
            Err(StateError::Panicked { channel: Arc::clone(self.name), reason: panic_text(&*panic) })
        });
        debug_assert!(
            *present
                || !matches!(
                    effect,
                    Ok(ChannelEffect::Items(_) | ChannelEffect::TookWrite(_) | ChannelEffect::Computed)
                ),
            "a channel that took a write holds something"
        );
        effect
    }

    fn no_list(self, found: &'static str) -> StateError {
        StateError::WrongType { channel: Arc::clone(self.name), expected: self.ops.type_name(), found }
    }

    /// Returns a write that is as it is stored by itself.
    pub(super) fn plain(self, write: &BoxWrite) -> BoxWrite {
        let plain = self.ops.lists().and_then(|lists| lists.plain(write));
        plain.unwrap_or_else(|| write.clone())
    }
}
