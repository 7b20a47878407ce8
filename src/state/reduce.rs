//! Fields with a reducer, which also take writes that replace their value.

use std::any::{Any, type_name};
use std::sync::Arc;

use crate::base::decode_bytes;
use crate::base::{Encoded, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Channel, ChannelEffect, Folded, Reduce};

use super::error::StateError;
use super::field::{FieldOps, FieldValue, Writable, channel_error, codec, misfit, whole_value, wrong_type};
use super::overwrite::{self, Overwrite};
use super::place::{held, held_mut};
use super::schema::cell;
use super::writes::BoxWrite;

/// A value of type `T` that is stored as one, into which each write is folded.
pub(super) struct ReduceField<T, W> {
    rule: Reduce<T, W>,
}

impl<T, W> ReduceField<T, W> {
    pub(super) fn new(rule: Reduce<T, W>) -> Self {
        Self { rule }
    }
}

/// A write as the field knows it: one to be folded, or one that replaces the value.
enum FoldWrite<'a, T, W> {
    Write(&'a W),
    Overwrite(&'a T),
}

fn known<'a, T: 'static, W: 'static>(name: &Arc<str>, write: &'a BoxWrite) -> Result<FoldWrite<'a, T, W>, StateError> {
    match (write.get::<W>(), write.get::<Overwrite<T>>()) {
        (Some(write), _) => Ok(FoldWrite::Write(write)),
        (None, Some(Overwrite(value))) => Ok(FoldWrite::Overwrite(value)),
        _ => Err(wrong_type::<W>(name, "a write of another type")),
    }
}

impl<T: FieldValue, W: Writable> FieldOps for ReduceField<T, W> {
    fn takes(&self, write: &BoxWrite) -> bool {
        write.get::<W>().is_some() || write.get::<Overwrite<T>>().is_some()
    }

    fn encode_write(&self, name: &Arc<str>, write: &BoxWrite) -> Result<WriteValue, StateError> {
        Ok(WriteValue::One(match known::<T, W>(name, write)? {
            FoldWrite::Write(write) => Encoded::encode(write).map_err(codec::<W>(name))?.into(),
            FoldWrite::Overwrite(value) => overwrite::wrapped(&Encoded::encode(value).map_err(codec::<T>(name))?.bytes),
        }))
    }

    fn decode_write(&self, name: &Arc<str>, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let WriteValue::One(payload) = stored else {
            return Err(wrong_type::<W>(name, "a list of items"));
        };
        if let Some(bytes) = overwrite::unwrapped(payload.as_ref()) {
            let value = decode_bytes::<T>(payload.codec, bytes).map_err(misfit::<T>(name, payload.as_ref()))?;
            return Ok(BoxWrite::new(Overwrite(value)));
        }
        let write = decode_bytes::<W>(payload.codec, &payload.data);
        write.map(BoxWrite::new).map_err(misfit::<W>(name, payload.as_ref()))
    }

    fn write_from_value(&self, name: &Arc<str>, value: Value) -> Result<BoxWrite, StateError> {
        match overwrite::of_value(value) {
            Ok(value) => value.to::<T>().map(|value| BoxWrite::new(Overwrite(value))).map_err(codec::<T>(name)),
            Err(value) => value.to::<W>().map(BoxWrite::new).map_err(codec::<W>(name)),
        }
    }

    fn write_to_value(&self, name: &Arc<str>, write: &BoxWrite) -> Result<Value, StateError> {
        match known::<T, W>(name, write)? {
            FoldWrite::Write(write) => Value::from_serialize(write).map_err(codec::<W>(name)),
            FoldWrite::Overwrite(value) => {
                Value::from_serialize(value).map(overwrite::to_value).map_err(codec::<T>(name))
            }
        }
    }

    fn update(
        &self,
        name: &Arc<str>,
        value: &mut dyn Any,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        let fold = |write: BoxWrite| match write.get::<Overwrite<T>>() {
            Some(_) => write.take::<Overwrite<T>>().map(|value| Folded::Overwrite(value.0)),
            None => write.take::<W>().map(Folded::Write),
        };
        let writes: Option<Vec<_>> = writes.into_iter().map(fold).collect();
        let writes = writes.ok_or_else(|| wrong_type::<W>(name, "a write of another type"))?;
        self.rule.update(cell(held_mut::<T>(value), present), writes).map_err(channel_error(name))
    }

    fn idle(&self, _: &mut dyn Any, _: &mut bool) -> ChannelEffect {
        ChannelEffect::Unchanged
    }

    whole_value!(T);
}
