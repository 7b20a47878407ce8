//! The output of an agent: text, or a value of a type that comes by a tool, by the provider's schema or by a prompt.
//!
//! *Absent:* counting retries, which is the loop's.

use std::sync::Arc;

use annals_base::{Map, Value};
use annals_pydantic_ai::{ErrorDetail, FeedbackCause, FeedbackContent};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::model::{OutputRequest, ToolDefinition};
use crate::schema::{read, schema_of, take_description};
use crate::shared::RunInfo;
use crate::tool_output::ModelRetry;

/// The name of the output tool.
pub(crate) const OUTPUT_TOOL: &str = "final_result";
/// The result of the output tool.
pub(crate) const OUTPUT_RESULT: &str = "Final result processed.";
/// The member that holds an output whose type is not an object.
const WRAPPED: &str = "response";

/// The way in which a typed output comes from the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputMode {
    /// By a call of an output tool (`ToolOutput`).
    #[default]
    Tool,
    /// As text that the provider makes fit a JSON schema (`NativeOutput`).
    Native,
    /// As text that the instructions ask for, with the JSON schema (`PromptedOutput`).
    Prompted,
}

type CheckOutput = Arc<dyn Fn(&Value) -> Result<(), Vec<ErrorDetail>> + Send + Sync>;
type ValidateOutput = Arc<dyn Fn(&Value, &RunInfo<'_>) -> annals_graph::graph::NodeResult<()> + Send + Sync>;

/// The output that an agent asks for.
#[derive(Clone, Default)]
pub(crate) struct OutputSpec {
    /// `None` for text.
    typed: Option<TypedOutput>,
    validators: Vec<ValidateOutput>,
}

#[derive(Clone)]
struct TypedOutput {
    mode: OutputMode,
    /// The name of the type.
    name: String,
    description: String,
    schema: Map,
    /// True if the value is the member `response` of an object.
    wrapped: bool,
    check: CheckOutput,
}

/// The reason for which an output is not used.
pub(crate) enum BadOutput {
    /// The model is asked for another one.
    Retry(FeedbackCause, FeedbackContent),
    /// A validator failed.
    Failed(annals_graph::graph::BoxError),
}

impl OutputSpec {
    /// Returns the output of a type.
    pub(crate) fn typed<T: DeserializeOwned + JsonSchema + 'static>(mode: OutputMode) -> Self {
        let mut schema = schema_of::<T>();
        let description = take_description(&mut schema);
        let wrapped = schema.get("type").and_then(Value::as_str) != Some("object");
        if wrapped {
            let definitions = schema.shift_remove("$defs");
            let value = json!({
                "type": "object",
                "properties": {WRAPPED: Value::Map(schema).to_json()},
                "required": [WRAPPED],
            });
            let Value::Map(object) = Value::from(value) else { unreachable!("an object was built") };
            schema = object;
            schema.extend(definitions.map(|definitions| ("$defs".to_owned(), definitions)));
        }
        let check: CheckOutput = Arc::new(|value| read::<T>(value).map(|_| ()));
        let name = T::schema_name().into_owned();
        Self { typed: Some(TypedOutput { mode, name, description, schema, wrapped, check }), validators: Vec::new() }
    }

    /// Returns whether the output has a type other than text.
    pub(crate) fn is_typed(&self) -> bool {
        self.typed.is_some()
    }

    pub(crate) fn add_validator(&mut self, validate: ValidateOutput) {
        self.validators.push(validate);
    }

    /// Returns the output tool.
    pub(crate) fn tool(&self) -> Option<ToolDefinition> {
        let typed = self.typed.as_ref().filter(|typed| typed.mode == OutputMode::Tool)?;
        let description = match typed.description.as_str() {
            "" => "Gives the output that ends the run.",
            text => text,
        };
        let (name, description) = (OUTPUT_TOOL.to_owned(), description.to_owned());
        Some(ToolDefinition { name, description, parameters: Arc::new(Value::Map(typed.schema.clone())) })
    }

    /// Returns whether a tool of a name is the output tool.
    pub(crate) fn is_tool(&self, name: &str) -> bool {
        name == OUTPUT_TOOL && self.typed.as_ref().is_some_and(|typed| typed.mode == OutputMode::Tool)
    }

    /// Returns whether text can be the output.
    pub(crate) fn allows_text(&self) -> bool {
        self.typed.as_ref().is_none_or(|typed| typed.mode != OutputMode::Tool)
    }

    /// Returns the request for a form of the text.
    pub(crate) fn request(&self) -> OutputRequest {
        match &self.typed {
            Some(typed) if typed.mode == OutputMode::Native => {
                OutputRequest::Schema { name: typed.name.clone(), schema: Value::Map(typed.schema.clone()) }
            }
            _ => OutputRequest::Plain,
        }
    }

    /// Returns the instructions that ask for the form of the text.
    pub(crate) fn instructions(&self) -> Option<String> {
        let typed = self.typed.as_ref().filter(|typed| typed.mode == OutputMode::Prompted)?;
        let schema = Value::Map(typed.schema.clone()).to_json();
        Some(format!("Answer with one JSON object that fits this schema, without any other text:\n\n{schema}"))
    }

    /// Reads the output from the text of a response.
    pub(crate) fn of_text(&self, text: &str, info: &RunInfo<'_>) -> Result<Value, BadOutput> {
        if self.typed.is_none() {
            let value = Value::from(text);
            return self.validated(value, info);
        }
        match serde_json::from_str::<serde_json::Value>(without_fence(text)) {
            Ok(value) => self.of_object(&value.into(), info),
            Err(error) => {
                let detail = ErrorDetail::new("json_invalid", Vec::new(), error.to_string(), text.into());
                Err(BadOutput::Retry(FeedbackCause::ValidationError, FeedbackContent::Errors(vec![detail])))
            }
        }
    }

    /// Reads the output from the arguments of an output tool, or from an object in text.
    pub(crate) fn of_object(&self, object: &Value, info: &RunInfo<'_>) -> Result<Value, BadOutput> {
        let value = self
            .checked(object)
            .map_err(|errors| BadOutput::Retry(FeedbackCause::ValidationError, FeedbackContent::Errors(errors)))?;
        self.validated(value, info)
    }

    /// Reads a value that fits the type.
    pub(crate) fn checked(&self, object: &Value) -> Result<Value, Vec<ErrorDetail>> {
        let Some(typed) = &self.typed else { return Ok(object.clone()) };
        let value = if typed.wrapped { object.get(WRAPPED).unwrap_or(&Value::Null) } else { object };
        (typed.check)(value).map(|()| value.clone())
    }

    fn validated(&self, value: Value, info: &RunInfo<'_>) -> Result<Value, BadOutput> {
        for validate in &self.validators {
            if let Err(error) = validate(&value, info) {
                return Err(match error.downcast_ref::<ModelRetry>() {
                    Some(retry) => {
                        BadOutput::Retry(FeedbackCause::ModelRetry, FeedbackContent::Text(retry.message().to_owned()))
                    }
                    None => BadOutput::Failed(error),
                });
            }
        }
        Ok(value)
    }
}

/// Returns a text without the fence of a code block around it.
pub(crate) fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inside) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inside.split_once('\n').map_or(inside, |(_, inside)| inside).trim()
}
