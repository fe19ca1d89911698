//! Fits the request of a model call to what the model takes.

use crate::context::ModelMessage;
use crate::model::options::{ModelCapabilities, ToolChoice};
use crate::model::provider::ModelRequest;

/// Removes from the request what the model does not take.
///
/// # Errors
///
/// Names the part that cannot be left out, as the end of a sentence about the provider.
pub(crate) fn fit(request: &mut ModelRequest, capabilities: &ModelCapabilities) -> Result<(), &'static str> {
    if request.output_schema.is_some() && !capabilities.structured_output {
        return Err("takes no output schema; remove it from the configuration, or choose another provider");
    }
    if !capabilities.tools {
        request.tools.clear();
    }
    Ok(())
}

/// Lets the model choose if the tool choice does not suit the messages and the tools.
pub(crate) fn choose(request: &mut ModelRequest) {
    let has_results = matches!(request.messages.last(), Some(ModelMessage::ToolResults(_)));
    let is_offered = match &request.tool_choice {
        _ if request.tools.is_empty() => false,
        ToolChoice::Required => !has_results,
        ToolChoice::Tool(name) => !has_results && request.tools.iter().any(|tool| tool.name == *name),
        _ => true,
    };
    if !is_offered {
        request.tool_choice = ToolChoice::Auto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::provider::ToolSpec;
    use agent_core::json::RawJson;

    #[test]
    fn choice_of_a_tool_ends_with_its_results() {
        use ToolChoice::{Auto, None, Required};
        let asked = ModelRequest::new([ModelMessage::user("Hello")]);
        let answered = ModelRequest::new([ModelMessage::ToolResults(Vec::new())]);
        let choice = |given: &ToolChoice, request: &ModelRequest, tools: &[ToolSpec]| {
            let (tool_choice, tools) = (given.clone(), tools.to_vec());
            let mut request = ModelRequest { tool_choice, tools, ..request.clone() };
            choose(&mut request);
            request.tool_choice
        };
        let tools = [ToolSpec::new("search", "")];
        let tool = |name: &str| ToolChoice::Tool(name.to_owned());
        for (given, first, later) in [
            (Auto, Auto, Auto),
            (None, None, None),
            (Required, Required, Auto),
            (tool("search"), tool("search"), Auto),
            (tool("other"), Auto, Auto),
        ] {
            assert_eq!(choice(&given, &asked, &tools), first, "{given:?}");
            assert_eq!(choice(&given, &answered, &tools), later, "{given:?}");
            assert_eq!(choice(&given, &asked, &[]), Auto, "{given:?}");
        }
    }

    #[test]
    fn requests_fit_the_model() {
        let (plain, all) = (ModelCapabilities::new(), ModelCapabilities::all());
        let mut request = ModelRequest::new(Vec::new());
        request.tools = vec![ToolSpec::new("search", "")];
        request.tool_choice = ToolChoice::Required;
        let fitted = |request: &ModelRequest, capabilities: &ModelCapabilities| {
            let mut request = request.clone();
            fit(&mut request, capabilities).map(|()| choose(&mut request)).map(|()| request)
        };
        assert_eq!(fitted(&request, &plain), Ok(request.clone()));
        assert_eq!(fitted(&request, &plain.clone().with_tools(false)), Ok(ModelRequest::default()));
        request.output_schema = Some(RawJson::empty_object());
        assert!(fitted(&request, &plain).is_err());
        assert_eq!(fitted(&request, &all), Ok(request));
    }
}
