CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
INSERT INTO schema_version (version, applied_at) VALUES (7, '2026-02-03 03:00:00');
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '', user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER, accumulated_total_tokens INTEGER, accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, schedule_id TEXT, recipe_json TEXT, user_recipe_values_json TEXT, provider_name TEXT, model_config_json TEXT, parent_session_id TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT);
INSERT INTO sessions (id, name, session_type, working_dir, created_at, updated_at, provider_name, model_config_json) VALUES ('20260203_1', 'Ferries', 'user', '/home/ann/trips', '2026-02-03 04:00:00', '2026-02-03 04:10:00', 'anthropic', '{"model_name":"claude-sonnet-4-5"}');
INSERT INTO sessions (id, description, session_type, working_dir, created_at, updated_at, parent_session_id) VALUES ('20260203_0', 'Find a hotel', 'sub_agent', 'C:\Users\ann\trips', '2026-02-03 03:59:00', '2026-02-03 04:10:00', '20260203_1');
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES
 ('msg_1', '20260203_1', 'user', '[{"type":"text","text":"When do the ferries leave?"}]', 1770091201, '{"userVisible":true,"agentVisible":false}'),
 ('msg_2', '20260203_1', 'assistant', '[{"type":"thinking","thinking":"Look it up.","signature":"c2ln"},{"type":"redactedThinking","data":"c2VjcmV0"},{"type":"text","text":"Let me look."},{"type":"toolRequest","id":"toolu_1","toolCall":{"status":"success","value":{"name":"developer__shell","arguments":{"command":"cat times"}}}},{"type":"toolRequest","id":"toolu_2","toolCall":{"status":"error","error":"-32602: Invalid arguments"}}]', 1770091202, '{"userVisible":true,"agentVisible":false}'),
 ('msg_3', '20260203_1', 'user', '[{"type":"toolResponse","id":"toolu_1","toolResult":{"status":"success","value":{"content":[{"type":"text","text":"07:00 Oslo"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}],"isError":false}}},{"type":"toolResponse","id":"toolu_2","toolResult":{"status":"error","error":"-32602: Invalid arguments"}}]', 1770091202, '{"userVisible":true,"agentVisible":false}'),
 ('msg_4', '20260203_1', 'assistant', '[{"type":"text","text":"At seven."}]', 1770091201, '{"userVisible":true,"agentVisible":false}'),
 ('msg_5', '20260203_1', 'user', '[{"type":"systemNotification","notificationType":"inlineMessage","msg":"Exceeded the limit. Compacting."}]', 1770091203, '{"userVisible":true,"agentVisible":false}'),
 ('msg_6', '20260203_1', 'user', '[{"type":"text","text":"Ferries leave at seven."}]', 1770091204, '{"userVisible":false,"agentVisible":true}'),
 ('msg_7', '20260203_1', 'assistant', '[{"type":"text","text":"Your context was compacted. Go on."}]', 1770091204, '{"userVisible":false,"agentVisible":true}');
-- later
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES
 ('msg_8', '20260203_1', 'user', '[{"type":"text","text":"And this?"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]', 1770091205000, NULL),
 ('msg_9', '20260203_1', 'assistant', '[{"type":"toolRequest","id":"call_1","toolCall":{"status":"success","value":{"name":"look","arguments":{}}},"metadata":{"thoughtSignature":"c2ln"}}]', 1770091206000, '{"userVisible":true,"agentVisible":true}'),
 (NULL, '20260203_0', 'user', '[{"type":"text","text":"Find a hotel"}]', 1770091203, NULL),
 (NULL, '20260203_0', 'user', '[{"type":"toolResponse","id":"call_9","toolResult":{"status":"success","value":[{"type":"text","text":"Hotel Viking"}]}}]', 1770091203, NULL),
 (NULL, '20260203_0', 'assistant', '[{"type":"toolRequest","id":"call_9","toolCall":{"status":"success","value":{"name":"search"}}}]', 1770091203, NULL),
 (NULL, '20260203_0', 'assistant', '[{"type":"text","text":"Hotel Viking."}]', 1770091203, NULL);
-- later
INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, metadata_json) VALUES
 ('msg_10', '20260203_1', 'user', '[{"type":"toolResponse","id":"call_1","toolResult":{"status":"success","value":{"content":[{"type":"text","text":"A dot"}],"structuredContent":{"dots":1},"isError":true}}}]', 1770091207000, '{}'),
 ('msg_10', '20260203_1', 'assistant', '[{"type":"text","text":"A white dot."}]', 1770091208000, '{}'),
 ('msg_11', '20260203_1', 'user', 'no JSON', 1770091209000, '{}'),
 ('msg_12', '20260203_1', 'user', '[{"type":"text","text":"Thanks."}]', 1770091210000, '{}'),
 ('msg_13', '20260203_1', 'assistant', '[{"type":"toolRequest","id":"call_2","toolCall":{"status":"success","value":{"name":"look","arguments":{}}}}]', 1770091211000, '{}');
