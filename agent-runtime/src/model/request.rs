//! Fits the request of a model call to what the model takes.

use crate::context::ModelMessage;
use crate::model::options::{ModelCapabilities, ToolChoice};
use crate::model::provider::{ModelRequest, ToolSpec};

/// Returns the request without what the model does not take.
///
/// # Errors
///
/// Names the part that cannot be left out, as the end of a sentence about the provider.
pub(crate) fn fit(
    mut request: ModelRequest,
    capabilities: &ModelCapabilities,
) -> Result<ModelRequest, &'static str> {
    if request.output_schema.is_some() && !capabilities.structured_output {
        return Err("takes no output schema; remove it from the configuration, or choose another provider");
    }
    if !capabilities.tools {
        request.tools.clear();
    }
    request.tool_choice = choice(request.tool_choice, &request.messages, &request.tools);
    Ok(request)
}

/// Returns the tool choice for a request with these messages and tools.
fn choice(choice: ToolChoice, messages: &[ModelMessage], tools: &[ToolSpec]) -> ToolChoice {
    let has_results = matches!(messages.last(), Some(ModelMessage::ToolResults(_)));
    match &choice {
        _ if tools.is_empty() => ToolChoice::Auto,
        ToolChoice::Required if has_results => ToolChoice::Auto,
        ToolChoice::Tool(name) if has_results || tools.iter().all(|tool| tool.name != *name) => {
            ToolChoice::Auto
        }
        _ => choice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::json::RawJson;

    #[test]
    fn choice_of_a_tool_ends_with_its_results() {
        use ToolChoice::{Auto, None, Required};
        let asked = [ModelMessage::user("Hello")];
        let answered = [ModelMessage::user("Hello"), ModelMessage::ToolResults(Vec::new())];
        let tools = [ToolSpec::new("search", "")];
        let tool = |name: &str| ToolChoice::Tool(name.to_owned());
        for (given, first, later) in [
            (Auto, Auto, Auto),
            (None, None, None),
            (Required, Required, Auto),
            (tool("search"), tool("search"), Auto),
            (tool("other"), Auto, Auto),
        ] {
            assert_eq!(choice(given.clone(), &asked, &tools), first, "{given:?}");
            assert_eq!(choice(given.clone(), &answered, &tools), later, "{given:?}");
            assert_eq!(choice(given.clone(), &asked, &[]), Auto, "{given:?}");
        }
    }

    #[test]
    fn requests_fit_the_model() {
        let (plain, all) = (ModelCapabilities::new(), ModelCapabilities::all());
        let mut request = ModelRequest::new(Vec::new());
        request.tools = vec![ToolSpec::new("search", "")];
        request.tool_choice = ToolChoice::Required;
        assert_eq!(fit(request.clone(), &plain).unwrap(), request);
        let without = fit(request.clone(), &plain.clone().with_tools(false)).unwrap();
        assert_eq!(without, ModelRequest::new(Vec::new()));
        request.output_schema = Some(RawJson::empty_object());
        assert!(fit(request.clone(), &plain).is_err());
        assert_eq!(fit(request.clone(), &all).unwrap(), request);
    }
}
