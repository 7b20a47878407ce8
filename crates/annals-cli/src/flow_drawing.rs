//! `annals graph`: draws the workflow of a file. JSON: `{"schema": 1, "name", "description", "nodes", "edges"}`.

use annals_flow::Flow;
use serde_json::json;

use crate::args::{DrawingFormat, GraphArgs};
use crate::drawing;
use crate::errors::CommandFailure;
use crate::flow_run;
use crate::output::{Printer, safe_lines};

pub(crate) fn run(args: &GraphArgs, out: &mut Printer) -> Result<u8, CommandFailure> {
    let flow = Flow::open(&args.file).map_err(flow_run::failure)?;
    let drawn = flow.drawing(args.depth);
    if out.is_json() {
        let mut document = json!({ "schema": 1, "name": flow.name(), "description": flow.description() });
        let mut parts = drawn.to_json();
        for member in ["nodes", "edges"] {
            document[member] = parts[member].take();
        }
        out.json(&document)?;
        return Ok(0);
    }
    let text = match args.format {
        DrawingFormat::Mermaid => drawn.to_mermaid(false),
        DrawingFormat::Dot => drawn.to_dot(),
        DrawingFormat::Svg => drawing::svg(&drawn, flow.name()),
        DrawingFormat::Text => drawing::text(&drawn),
    };
    for line in safe_lines(&text) {
        out.line(line)?;
    }
    Ok(0)
}
