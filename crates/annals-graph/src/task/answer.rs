//! Interrupts with a schema of their resume value.
//!
//! *Absent:* the schema itself, which [`InvalidResumeValue`](annals_runs::InvalidResumeValue) verifies.

use crate::base::Value;
use crate::graph::NodeResult;
use annals_runs::check_resume_value;

use super::context::{Context, Interrupt, interrupt_id};

impl Context {
    /// Interrupts the run as [`Context::interrupt`] does, with a JSON schema of the resume value, which the interrupt
    /// shows as [`Interrupt::response_schema`]. A resume value that does not fit is refused when it is given, as
    /// [`RunError::InvalidResumeValue`](crate::RunError::InvalidResumeValue): nothing is written, and the interrupt
    /// stays open.
    ///
    /// Of JSON Schema `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf`,
    /// local `$ref`, and the bounds of numbers, texts and lists are checked; the rest is only shown.
    ///
    /// # Errors
    /// [`Interrupted`](super::Interrupted) while the resume value is missing, as of [`Context::interrupt`];
    /// [`InvalidResumeValue`](annals_runs::InvalidResumeValue) for a value that was given before the task reached the
    /// interrupt. Both are passed on with `?`.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    /// use serde_json::json;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(last)] count: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let count = json!({"type": "integer", "minimum": 1});
    /// let schema = json!({"type": "object", "properties": {"count": count}, "required": ["count"]});
    /// let graph = StateGraph::<Order>::new()
    ///     .node("ask", move |_: &Order, ctx: &Context| {
    ///         let answer = ctx.interrupt_with("how many?", schema.clone())?;
    ///         Ok(Order::update().count(answer.get("count").and_then(Value::as_int).unwrap_or_default()))
    ///     })
    ///     .edge(START, "ask")
    ///     .compile()?;
    /// let thread = Store::memory().thread("order")?;
    /// graph.invoke(&thread, Order::update())?;
    ///
    /// let refused = graph.invoke(&thread, Command::resume(json!({"count": "many"}))).unwrap_err();
    /// assert!(refused.to_string().contains("$.count must be an integer, but is a text"), "{refused}");
    /// assert_eq!(graph.invoke(&thread, Command::resume(json!({"count": 3})))?.state().count, 3);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "response_schema")]
    pub fn interrupt_with(&self, value: impl Into<Value>, schema: impl Into<Value>) -> NodeResult<Value> {
        let schema = schema.into();
        let with_schema = |id| Interrupt { response_schema: Some(schema.clone()), ..Interrupt::new(value.into(), id) };
        let (at, resume) = self.ask(with_schema)?;
        if let Err(misfit) = check_resume_value(&schema, &resume, &interrupt_id(&self.namespace(), at)) {
            let mut asked = self.asked().lock();
            // The value is not retained as one that was given.
            asked.resume_values.truncate(at);
            asked.read = at;
            return Err(misfit.into());
        }
        Ok(resume)
    }
}
