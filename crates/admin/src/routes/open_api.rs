//! The OpenAPI document of the routes.

use serde_json::{Map, Value, json};

use super::{Action, Route, routes};

/// The API as an OpenAPI document, version 3.1.
pub(crate) fn open_api(version: &str) -> Value {
    let mut paths = Map::new();
    for route in routes().filter(|route| !route.is_page()) {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Pondhawk", "version": version, "description": "Operation of a Pondhawk MQTT broker" },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "password": { "type": "http", "scheme": "basic" },
            },
            "schemas": { "Error": {
                "type": "object",
                "properties": { "error": {
                    "type": "object",
                    "properties": { "status": { "type": "integer" }, "message": { "type": "string" } },
                } },
            } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } })
    });
    let in_query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "description": parameter.text,
            "schema": parameter.schema(),
        })
    });
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let error = json!({
        "description": "The request is refused, or cannot be carried out",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    });
    let content_type = match route.action {
        Action::Healthy | Action::Metrics => "text/plain",
        Action::TraceFile => "application/vnd.tcpdump.pcap",
        _ => "application/json",
    };
    let done = json!({ "description": route.summary, "content": { content_type: {} } });
    let mut operation = json!({
        "summary": route.summary,
        "operationId": route.action.to_string(),
        "parameters": parameters,
        "responses": { "200": done, "default": error },
    });
    if let Some(role) = route.role {
        operation["security"] = json!([{ "token": [] }, { "password": [] }]);
        operation["description"] = json!(format!("Needs the role {} or higher.", role.word()));
    }
    if !route.body.is_empty() {
        let fields: Map<String, Value> = route
            .body
            .iter()
            .map(|field| {
                let mut schema = field.schema();
                schema["description"] = json!(field.text);
                (field.name.to_owned(), schema)
            })
            .collect();
        let required: Vec<&str> =
            route.body.iter().filter(|field| field.is_required).map(|field| field.name).collect();
        let schema = json!({ "type": "object", "properties": fields, "required": required });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}
