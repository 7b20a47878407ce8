//! The inputs of a form for the resume value of an interrupt, and the value that the filled form makes.
//!
//! The inputs come from the schema of the interrupt, or else from the member `schema`, `options` or `action_requests`
//! of its value. Invariant: a value that is made from inputs has the shape that the interrupt names. *Absent:* nested
//! objects and lists, whose interrupts get a field for JSON.

use annals::base::Value;
use annals_runs::OpenInterrupt;
use annals_view::words::{brief, shortened};
use serde_json::{Map, Value as Json, json};

use crate::failure::Refusal;
use crate::html::Html;
use crate::limits::{BUTTONS_MAX, INPUTS_MAX};
use crate::request::Fields;

/// The decisions about an action whose interrupt names none.
const DECISIONS: [&str; 3] = ["approve", "edit", "reject"];

/// The inputs of the form of an interrupt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResumeInputs {
    /// One input for the value itself.
    Whole(MemberInput),
    /// One input for each member of an object.
    Members(Vec<MemberInput>),
    /// A choice among values, each with its label.
    Options(Vec<(String, Json)>),
    /// A decision about each action that an agent asks leave for, as LangChain's middleware for a human in the loop has
    /// them.
    Decisions(Vec<ActionInput>),
    /// The value as JSON.
    Json,
}

/// An input for a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberInput {
    name: String,
    label: String,
    hint: String,
    kind: InputKind,
    is_required: bool,
    default: Json,
}

#[derive(Clone, Debug, PartialEq)]
enum InputKind {
    Text,
    Number,
    Integer,
    /// A choice among scalars, booleans included.
    Choice(Vec<Json>),
}

/// An action with the decisions that are allowed about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ActionInput {
    tool: String,
    args: Json,
    description: String,
    allowed: Vec<String>,
}

impl ResumeInputs {
    /// Returns the inputs for an interrupt.
    pub(super) fn of(open: &OpenInterrupt) -> Self {
        let value = open.value.to_json();
        let schema = open.response_schema.as_ref().map(Value::to_json);
        let schema = schema.or_else(|| value.get("schema").cloned());
        let actions = value.get("action_requests").and_then(Json::as_array);
        schema
            .and_then(|schema| Self::of_schema(&schema))
            .or_else(|| Self::of_options(value.get("options")?.as_array()?))
            .or_else(|| Self::of_actions(actions?, &value))
            .unwrap_or(Self::Json)
    }

    /// Returns the inputs for a schema; `None` if one of its parts is not a scalar.
    fn of_schema(schema: &Json) -> Option<Self> {
        let Some(properties) = schema.get("properties").and_then(Json::as_object) else {
            return MemberInput::of("value", schema, true).map(Self::Whole);
        };
        let required: Vec<&str> = strings(schema.get("required")).collect();
        let members = properties.iter().map(|(name, of)| MemberInput::of(name, of, required.contains(&name.as_str())));
        let members: Vec<MemberInput> = members.collect::<Option<_>>()?;
        (1..=INPUTS_MAX).contains(&members.len()).then_some(Self::Members(members))
    }

    /// Returns a choice. An option is a value, or an object with a `value` and perhaps a `label`.
    fn of_options(options: &[Json]) -> Option<Self> {
        let choice = |option: &Json| match option.get("value") {
            Some(value) => {
                let label = option.get("label").and_then(Json::as_str);
                (label.map_or_else(|| label_of(value), |label| shortened(label, 100)), value.clone())
            }
            None => (label_of(option), option.clone()),
        };
        (1..=INPUTS_MAX).contains(&options.len()).then(|| Self::Options(options.iter().map(choice).collect()))
    }

    fn of_actions(actions: &[Json], value: &Json) -> Option<Self> {
        let configs = value.get("review_configs").and_then(Json::as_array);
        let action = |request: &Json| {
            let tool = request.get("name").or_else(|| request.get("action"))?.as_str()?;
            let config = configs.and_then(|configs| configs.iter().find(|config| config["action_name"] == tool));
            let stated = [Some(request), config, Some(value)].into_iter().flatten();
            let mut stated =
                stated.map(|of| strings(of.get("allowed_decisions")).map(str::to_owned).collect::<Vec<_>>());
            Some(ActionInput {
                tool: tool.to_owned(),
                args: request.get("args").or_else(|| request.get("arguments")).cloned().unwrap_or_else(|| json!({})),
                description: request.get("description").and_then(Json::as_str).unwrap_or_default().to_owned(),
                allowed: stated
                    .find(|allowed| !allowed.is_empty())
                    .unwrap_or_else(|| DECISIONS.map(str::to_owned).to_vec()),
            })
        };
        let actions: Vec<ActionInput> = actions.iter().map(action).collect::<Option<_>>()?;
        (1..=INPUTS_MAX).contains(&actions.len()).then_some(Self::Decisions(actions))
    }
}

impl ResumeInputs {
    /// Returns the labels of a choice of few values, which has a button for each; `None` of another form.
    pub(super) fn buttons(&self) -> Option<Vec<String>> {
        let labels: Vec<String> = match self {
            Self::Options(options) => options.iter().map(|(label, _)| label.clone()).collect(),
            Self::Whole(MemberInput { kind: InputKind::Choice(values), .. }) => values.iter().map(label_of).collect(),
            _ => return None,
        };
        (labels.len() <= BUTTONS_MAX).then_some(labels)
    }

    /// Adds the inputs to a form.
    pub(super) fn add_to(&self, html: &mut Html) {
        match self {
            Self::Whole(input) => input.add_to(html),
            Self::Members(inputs) => inputs.iter().for_each(|input| input.add_to(html)),
            Self::Options(options) => {
                html.within("label", &[], |html| {
                    html.text("value ");
                    choice(html, "in.value", options.iter().map(|(label, _)| label.as_str()), true, None);
                });
            }
            Self::Decisions(actions) => {
                for (at, action) in actions.iter().enumerate() {
                    action.add_to(html, at);
                }
            }
            Self::Json => {}
        }
    }

    /// Returns the value of a filled form.
    pub(super) fn read(&self, form: &Fields) -> Result<Value, Refusal> {
        let value = match self {
            Self::Whole(input) => {
                input.read(form)?.ok_or_else(|| Refusal::usage("value is empty: name a resume value"))?
            }
            Self::Members(inputs) => {
                let mut members = Map::new();
                for input in inputs {
                    members.extend(input.read(form)?.map(|value| (input.name.clone(), value)));
                }
                Json::Object(members)
            }
            Self::Options(options) => {
                let chosen = chosen(form, "in.value", options.len())?;
                let chosen = chosen.ok_or_else(|| Refusal::usage("value is empty: choose an option"))?;
                options[chosen].1.clone()
            }
            Self::Decisions(actions) => {
                let decisions = actions.iter().enumerate().map(|(at, action)| action.read(form, at));
                json!({ "decisions": decisions.collect::<Result<Vec<_>, _>>()? })
            }
            Self::Json => return Err(Refusal::usage("value is empty: name a resume value")),
        };
        Ok(Value::from(value))
    }
}

impl MemberInput {
    /// Returns the input for the schema of a scalar; `None` for another schema.
    fn of(name: &str, schema: &Json, is_required: bool) -> Option<Self> {
        let text = |member: &str| schema.get(member).and_then(Json::as_str);
        let is_composed = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|member| schema.get(member).is_some());
        // A type of a text or null is that of a text that may be absent.
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Json::Array(_)) => strings(schema.get("type")).collect(),
            kind => kind.and_then(Json::as_str).into_iter().collect(),
        };
        let is_nullable = kinds.contains(&"null");
        let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
        let values = schema.get("enum").and_then(Json::as_array).cloned();
        let values = values.or_else(|| schema.get("const").map(|only| vec![only.clone()]));
        let kind = match (values, &kinds[..]) {
            _ if is_composed => return None,
            (Some(values), _) => {
                let is_flat = values.iter().all(|value| !value.is_object() && !value.is_array());
                InputKind::Choice(Some(values).filter(|of| is_flat && (1..=INPUTS_MAX).contains(&of.len()))?)
            }
            (None, ["string"]) => InputKind::Text,
            (None, ["number"]) => InputKind::Number,
            (None, ["integer"]) => InputKind::Integer,
            (None, ["boolean"]) => InputKind::Choice(vec![json!(true), json!(false)]),
            (None, _) => return None,
        };
        Some(Self {
            name: name.to_owned(),
            label: shortened(text("title").unwrap_or(name), 100),
            hint: shortened(text("description").unwrap_or_default(), 200),
            kind,
            is_required: is_required && !is_nullable,
            default: schema.get("default").cloned().unwrap_or_default(),
        })
    }

    /// Returns the name of the field: members cannot collide with the fields of every form.
    fn field(&self) -> String {
        format!("in.{}", self.name)
    }

    fn add_to(&self, html: &mut Html) {
        let field = self.field();
        html.open("p", &[]).open("label", &[]).text(&self.label).literal(" ");
        let default = match &self.default {
            Json::Null => String::new(),
            Json::String(text) => text.clone(),
            value => value.to_string(),
        };
        let mut attributes = vec![("name", field.as_str()), ("value", &default)];
        attributes.extend(self.is_required.then_some(("required", "")));
        match &self.kind {
            InputKind::Text => _ = html.open("input", &[&attributes[..], &[("size", "40")]].concat()),
            InputKind::Number => {
                _ = html.open("input", &[&attributes[..], &[("type", "number"), ("step", "any")]].concat());
            }
            InputKind::Integer => {
                _ = html.open("input", &[&attributes[..], &[("type", "number"), ("step", "1")]].concat());
            }
            InputKind::Choice(values) => {
                let labels: Vec<String> = values.iter().map(label_of).collect();
                let selected = values.iter().position(|value| *value == self.default);
                choice(html, &field, labels.iter().map(String::as_str), self.is_required, selected);
            }
        }
        html.close("label");
        if !self.hint.is_empty() {
            html.literal(" ").classed("span", "dim", &self.hint);
        }
        html.close("p");
    }

    /// Returns the value of the input; `None` if it is empty and need not be filled.
    fn read(&self, form: &Fields) -> Result<Option<Json>, Refusal> {
        let field = self.field();
        let wrong = |expected: &str| Refusal::usage(format!("{} is not {expected}", self.name));
        let value = match (&self.kind, form.get(&field)) {
            (_, None) if self.is_required => return Err(Refusal::usage(format!("{} is empty", self.name))),
            (_, None) => return Ok(None),
            (InputKind::Text, Some(text)) => json!(text),
            (InputKind::Number, Some(text)) => {
                let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| wrong("a number"))?;
                text.trim().parse::<i64>().map_or_else(|_| json!(number), |whole| json!(whole))
            }
            (InputKind::Integer, Some(text)) => json!(text.trim().parse::<i64>().map_err(|_| wrong("an integer"))?),
            (InputKind::Choice(values), Some(_)) => match chosen(form, &field, values.len())? {
                Some(at) => values[at].clone(),
                None => return Ok(None),
            },
        };
        Ok(Some(value))
    }
}

impl ActionInput {
    fn add_to(&self, html: &mut Html, at: usize) {
        html.open("fieldset", &[]).element("legend", &[("dir", "auto")], &shortened(&self.tool, 100));
        if !self.description.is_empty() {
            html.element("pre", &[("dir", "auto"), ("class", "text")], &shortened(&self.description, 1_000));
        }
        html.open("p", &[]).open("label", &[]).text("decision ");
        choice(html, &format!("in.{at}.type"), self.allowed.iter().map(String::as_str), true, None);
        html.close("label").close("p");
        let allows = |name: &str| self.allowed.iter().any(|allowed| allowed == name);
        let args = format!("{:#}", self.args);
        if allows("edit") {
            html.open("p", &[]).open("label", &[]).text("arguments, for an edit").literal("<br>");
            html.open("textarea", &[("name", &format!("in.{at}.args")), ("rows", "4"), ("cols", "60")]);
            // The first line break of the element is not part of its content.
            html.literal("\n").text(&args).close("textarea").close("label").close("p");
        } else {
            html.element("pre", &[("dir", "auto")], &shortened(&args, 1_000));
        }
        if self.allowed.iter().any(|allowed| !matches!(allowed.as_str(), "approve" | "edit")) {
            html.open("p", &[]).open("label", &[]).text("message, unless it is approved or edited ");
            html.open("input", &[("name", &format!("in.{at}.message")), ("size", "40")]).close("label").close("p");
        }
        html.close("fieldset");
    }

    fn read(&self, form: &Fields, at: usize) -> Result<Json, Refusal> {
        let chosen = chosen(form, &format!("in.{at}.type"), self.allowed.len())?;
        let chosen = chosen.ok_or_else(|| Refusal::usage(format!("no decision about {} is chosen", self.tool)))?;
        let decision = self.allowed[chosen].as_str();
        let message = form.get(&format!("in.{at}.message"));
        Ok(match (decision, message) {
            ("approve", _) => json!({ "type": decision }),
            ("edit", _) => {
                let text = form.get(&format!("in.{at}.args")).unwrap_or_default();
                let wrong = || Refusal::usage(format!("the arguments of {} are not a JSON object", self.tool));
                let args = serde_json::from_str::<Json>(text).ok().filter(Json::is_object).ok_or_else(wrong)?;
                json!({ "type": decision, "edited_action": { "name": self.tool, "args": args } })
            }
            (_, Some(message)) => json!({ "type": decision, "message": message }),
            (_, None) => json!({ "type": decision }),
        })
    }
}

/// Adds a choice. An option is sent as its number, since its text may be that of another one.
fn choice<'a>(
    html: &mut Html,
    field: &str,
    labels: impl Iterator<Item = &'a str>,
    is_required: bool,
    selected: Option<usize>,
) {
    let mut attributes = vec![("name", field)];
    attributes.extend(is_required.then_some(("required", "")));
    html.open("select", &attributes).element("option", &[("value", "")], "choose");
    for (at, label) in labels.enumerate() {
        let number = at.to_string();
        let mut attributes = vec![("value", number.as_str())];
        attributes.extend((selected == Some(at)).then_some(("selected", "")));
        html.element("option", &attributes, label);
    }
    html.close("select");
}

/// Returns the number of the chosen option.
fn chosen(form: &Fields, field: &str, len: usize) -> Result<Option<usize>, Refusal> {
    let Some(text) = form.get(field) else { return Ok(None) };
    let at = text.parse::<usize>().ok().filter(|at| *at < len);
    at.map(Some).ok_or_else(|| Refusal::usage(format!("{text} is not the number of an option")))
}

/// Returns the text of an option: of booleans the words of a person.
fn label_of(value: &Json) -> String {
    match value {
        Json::Bool(true) => "yes".to_owned(),
        Json::Bool(false) => "no".to_owned(),
        value => brief(&Value::from(value.clone())),
    }
}

fn strings(list: Option<&Json>) -> impl Iterator<Item = &str> {
    list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(schema: Json) -> Option<ResumeInputs> {
        ResumeInputs::of_schema(&json!({ "type": "object", "properties": { "a": schema }, "required": ["a"] }))
    }

    fn filled(inputs: &ResumeInputs, form: &str) -> Result<Json, String> {
        let value = inputs.read(&Fields::read(form).unwrap());
        value.map(|value| value.to_json()).map_err(|refusal| refusal.message)
    }

    #[test]
    fn scalars_have_inputs_and_other_schemas_have_none() {
        for (schema, form, value) in [
            (json!({ "type": "string" }), "in.a=3", json!("3")),
            (json!({ "type": "integer" }), "in.a=-3", json!(-3)),
            (json!({ "type": "number" }), "in.a=2.5", json!(2.5)),
            (json!({ "type": "number" }), "in.a=2", json!(2)),
            (json!({ "type": "boolean" }), "in.a=1", json!(false)),
            (json!({ "enum": ["x", 7, null] }), "in.a=1", json!(7)),
            (json!({ "const": "only" }), "in.a=0", json!("only")),
        ] {
            let inputs = member(schema.clone()).unwrap();
            assert_eq!(filled(&inputs, form), Ok(json!({ "a": value })), "{schema}");
            assert!(filled(&inputs, "").unwrap_err().contains("a is empty"), "{schema}");
        }
        for schema in [
            json!({ "type": "object" }),
            json!({ "type": "array" }),
            json!({ "$ref": "#/$defs/a" }),
            json!({ "type": ["string", "integer"] }),
            json!({ "enum": [{ "a": 1 }] }),
            json!({ "enum": [] }),
            json!({}),
            json!(true),
        ] {
            assert_eq!(member(schema.clone()), None, "{schema}");
        }
    }

    #[test]
    fn a_member_that_may_be_absent_is_left_out() {
        let optional = member(json!({ "type": ["integer", "null"] })).unwrap();
        assert_eq!(filled(&optional, "in.a="), Ok(json!({})));
        assert_eq!(filled(&optional, "in.a=4"), Ok(json!({ "a": 4 })));
    }

    #[test]
    fn values_that_are_not_of_the_schema_are_refused() {
        let integer = member(json!({ "type": "integer" })).unwrap();
        assert_eq!(filled(&integer, "in.a=many"), Err("a is not an integer".into()));
        let number = member(json!({ "type": "number" })).unwrap();
        assert_eq!(filled(&number, "in.a=inf"), Err("a is not a number".into()));
        let boolean = member(json!({ "type": "boolean" })).unwrap();
        assert_eq!(filled(&boolean, "in.a=2"), Err("2 is not the number of an option".into()));
    }
}
