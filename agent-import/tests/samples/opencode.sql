CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL, directory text NOT NULL, title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer, summary_deletions integer, summary_files integer, summary_diffs text, revert text, permission text, time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, time_created, time_updated) VALUES
 ('ses_2', 'p1', 'ses_1', 'quiet-fox', '/home/ann/trips', 'Find a hotel', '1.2.6', 1770091200000, 1770091200000),
 ('ses_1', 'p1', NULL, 'brave-cat', '/home/ann/trips', 'Ferries', '1.2.6', 1770091201000, 1770091201000);
INSERT INTO message VALUES
 ('msg_01', 'ses_1', 1770091202000, 1770091202000, '{"role":"user","time":{"created":1770091202000},"agent":"build","model":{"providerID":"anthropic","modelID":"claude-sonnet-4-5"}}'),
 ('msg_02', 'ses_1', 1770091203000, 1770091203000, '{"role":"assistant","time":{"created":1770091203000,"completed":1770091206000},"parentID":"msg_01","modelID":"claude-sonnet-4-5","providerID":"anthropic","mode":"build","agent":"build","path":{"cwd":"/home/ann/trips","root":"/"},"cost":0.01,"tokens":{"input":10,"output":5,"reasoning":0,"cache":{"read":20,"write":100}},"finish":"tool-calls"}'),
 ('msg_03', 'ses_1', 1770091207000, 1770091207000, '{"role":"assistant","time":{"created":1770091207000},"parentID":"msg_01","modelID":"claude-sonnet-4-5","providerID":"anthropic","mode":"build","agent":"build","cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}');
INSERT INTO part VALUES
 ('prt_01', 'msg_01', 'ses_1', 1, 1, '{"type":"text","text":"When do the ferries leave?"}'),
 ('prt_02', 'msg_01', 'ses_1', 1, 1, '{"type":"file","mime":"text/plain","filename":"times","url":"file:///home/ann/trips/times","source":{"type":"file","path":"times","text":{"value":"@times","start":0,"end":6}}}'),
 ('prt_03', 'msg_01', 'ses_1', 1, 1, '{"type":"text","synthetic":true,"text":"Called the Read tool with the following input: {\"filePath\":\"times\"}"}'),
 ('prt_04', 'msg_02', 'ses_1', 1, 1, '{"type":"step-start","snapshot":"abc"}'),
 ('prt_05', 'msg_02', 'ses_1', 1, 1, '{"type":"reasoning","text":"Look it up.","metadata":{"anthropic":{"signature":"c2ln"}},"time":{"start":1770091203100,"end":1770091203200}}'),
 ('prt_06', 'msg_02', 'ses_1', 1, 1, '{"type":"text","text":"Let me look.","time":{"start":1770091203300,"end":1770091203400}}'),
 ('prt_07', 'msg_02', 'ses_1', 1, 1, '{"type":"tool","callID":"toolu_1","tool":"bash","state":{"status":"completed","input":{"command":"cat times"},"output":"07:00 Oslo","title":"times","metadata":{},"time":{"start":1770091204000,"end":1770091205000},"attachments":[{"id":"prt_x","type":"file","mime":"image/png","url":"data:image/png;base64,iVBORw0KGgo="}]}}'),
 ('prt_08', 'msg_02', 'ses_1', 1, 1, '{"type":"tool","callID":"toolu_2","tool":"webfetch","state":{"status":"error","input":{"url":"https://ferries.example"},"error":"no such host","time":{"start":1770091203900,"end":1770091205000}}}'),
 ('prt_09', 'msg_02', 'ses_1', 1, 1, '{"type":"patch","hash":"abc","files":["times"]}'),
 ('prt_10', 'msg_02', 'ses_1', 1, 1, '{"type":"step-finish","reason":"tool-calls","cost":0.01,"tokens":{"input":10,"output":5,"reasoning":2,"cache":{"read":20,"write":100}}}'),
 ('prt_11', 'msg_03', 'ses_1', 1, 1, '{"type":"text","text":"At "}');
-- later
UPDATE part SET data = '{"type":"text","text":"At seven."}' WHERE id = 'prt_11';
UPDATE message SET data = json_set(data, '$.time.completed', 1770091208000, '$.finish', 'stop', '$.tokens.input', 30) WHERE id = 'msg_03';
INSERT INTO message VALUES
 ('msg_04', 'ses_1', 1770091209000, 1, '{"role":"user","time":{"created":1770091209000},"agent":"build","model":{"providerID":"openai","modelID":"gpt-5"}}'),
 ('msg_05', 'ses_1', 1770091210000, 1, '{"role":"assistant","summary":true,"time":{"created":1770091210000,"completed":1770091211000},"parentID":"msg_04","modelID":"gpt-5","providerID":"openai","mode":"compaction","tokens":{"input":7,"output":3,"reasoning":0,"cache":{"read":0,"write":0}},"finish":"stop"}'),
 ('msg_06', 'ses_1', 1770091212000, 1, '{"role":"user","time":{"created":1770091212000},"agent":"build","model":{"providerID":"openai","modelID":"gpt-5"}}'),
 ('msg_07', 'ses_1', 1770091213000, 1, '{"role":"assistant","time":{"created":1770091213000},"error":{"name":"MessageAbortedError","data":{"message":"aborted"}},"parentID":"msg_06","modelID":"gpt-5","providerID":"openai","mode":"build","tokens":{}}'),
 ('msg_08', 'ses_1', 1770091214000, 1, '{"role":"user","time":{"created":1770091214000},"agent":"build","model":{"providerID":"openai","modelID":"gpt-5"}}'),
 ('msg_09', 'ses_1', 1770091215000, 1, '{"role":"assistant","time":{"created":1770091215000,"completed":1770091216000},"parentID":"msg_08","modelID":"gpt-5","providerID":"openai","mode":"build","tokens":{}}'),
 ('msg_h1', 'ses_2', 1770091204000, 1, '{"role":"user","time":{"created":1770091204000}}'),
 ('msg_h2', 'ses_2', 1770091204000, 1, '{"role":"assistant","time":{"created":1770091204000,"completed":1770091205000},"modelID":"gemini-3-pro","providerID":"google"}');
INSERT INTO part VALUES
 ('prt_12', 'msg_04', 'ses_1', 1, 1, '{"type":"compaction","auto":false}'),
 ('prt_13', 'msg_05', 'ses_1', 1, 1, '{"type":"text","text":"Ferries leave at seven."}'),
 ('prt_14', 'msg_06', 'ses_1', 1, 1, '{"type":"text","text":"And on Sundays?"}'),
 ('prt_15', 'msg_07', 'ses_1', 1, 1, '{"type":"reasoning","text":"","metadata":{"openai":{"itemId":"rs_1","reasoningEncryptedContent":"ZW5j"}},"time":{"start":1770091213000}}'),
 ('prt_16', 'msg_07', 'ses_1', 1, 1, '{"type":"tool","callID":"call_1","tool":"bash","state":{"status":"running","input":{"command":"cat sundays"},"time":{"start":1770091213000}}}'),
 ('prt_17', 'msg_08', 'ses_1', 1, 1, '{"type":"text","text":"Forget it."}'),
 ('prt_18', 'msg_09', 'ses_1', 1, 1, '{"type":"text","text":"Gone."}'),
 ('prt_19', 'msg_h1', 'ses_2', 1, 1, '{"type":"subtask","prompt":"Find a hotel","description":"hotel","agent":"general"}'),
 ('prt_20', 'msg_h2', 'ses_2', 1, 1, '{"type":"text","text":"Hotel Viking."}');
UPDATE session SET revert = '{"messageID":"msg_08","snapshot":"abc","diff":""}' WHERE id = 'ses_1';
