BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'user 7/ferries','{"role": "user", "content": "When do the ferries to Oslo leave?"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(2,'user 7/ferries','{"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I need the table."}], "encrypted_content": "gAAAAABc2VjcmV0"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(3,'user 7/ferries','{"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "timetable", "arguments": "{\"city\":\"Oslo\"}", "status": "completed"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(4,'user 7/ferries','{"type": "function_call_output", "call_id": "call_1", "output": "07:00 Oslo"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(5,'user 7/ferries','{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "At seven.", "annotations": [], "logprobs": []}]}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(6,'user 7/ferries','{"role": "user", "content": [{"type": "input_text", "text": "And this?"}, {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo="}]}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(7,'user 7/ferries','{"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "ferry"}}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(8,'user 7/ferries','{"id": "msg_2", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "A ferry.", "annotations": []}]}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(9,'user 7/ferries','{"role": "user", "content": "And on Sundays?"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(10,'user 7/ferries','{"id": "msg_3", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "At nine.", "annotations": []}]}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(11,'user 7/ferries','{"role": "user", "content": "Book it."}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(12,'user 7/ferries','{"id": "fc_2", "type": "function_call", "call_id": "call_2", "name": "book", "arguments": "{}", "status": "completed"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(13,'plain','{"role": "system", "content": "Be brief."}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(14,'plain','{"role": "user", "content": "Hello"}','2026-02-03 06:00:00');
INSERT INTO "agent_messages" VALUES(15,'plain','{"role": "assistant", "content": "Hi"}','2026-02-03 06:00:00');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('user 7/ferries','2026-02-03 06:00:00','2026-02-03 06:00:00');
INSERT INTO "agent_sessions" VALUES('plain','2026-02-03 06:00:00','2026-02-03 06:00:00');
CREATE TABLE branch_reservations (
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL,
                PRIMARY KEY (session_id, branch_id)
            );
INSERT INTO "branch_reservations" VALUES('user 7/ferries','main');
INSERT INTO "branch_reservations" VALUES('user 7/ferries','other');
CREATE TABLE message_structure (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_id INTEGER NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                message_type TEXT NOT NULL,
                sequence_number INTEGER NOT NULL,
                user_turn_number INTEGER,
                branch_turn_number INTEGER,
                tool_name TEXT,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                FOREIGN KEY (message_id)
                    REFERENCES agent_messages(id) ON DELETE CASCADE
            );
INSERT INTO "message_structure" VALUES(1,'user 7/ferries',1,'main','user',1,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(2,'user 7/ferries',2,'main','reasoning',2,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(3,'user 7/ferries',3,'main','function_call',3,1,1,'timetable','2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(4,'user 7/ferries',4,'main','function_call_output',4,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(5,'user 7/ferries',5,'main','assistant',5,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(6,'user 7/ferries',6,'main','user',6,2,2,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(7,'user 7/ferries',7,'main','web_search_call',7,2,2,'web_search_call','2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(8,'user 7/ferries',8,'main','assistant',8,2,2,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(9,'user 7/ferries',1,'other','user',9,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(10,'user 7/ferries',2,'other','reasoning',10,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(11,'user 7/ferries',3,'other','function_call',11,1,1,'timetable','2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(12,'user 7/ferries',4,'other','function_call_output',12,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(13,'user 7/ferries',5,'other','assistant',13,1,1,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(14,'user 7/ferries',9,'other','user',14,2,2,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(15,'user 7/ferries',10,'other','assistant',15,2,2,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(16,'user 7/ferries',11,'other','user',16,3,3,NULL,'2026-02-03 06:00:00');
INSERT INTO "message_structure" VALUES(17,'user 7/ferries',12,'other','function_call',17,3,3,'book','2026-02-03 06:00:00');
CREATE TABLE session_clear_generations (
                session_id TEXT PRIMARY KEY,
                generation INTEGER NOT NULL DEFAULT 0
            );
INSERT INTO "session_clear_generations" VALUES('user 7/ferries',0);
CREATE TABLE turn_usage (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                branch_id TEXT NOT NULL DEFAULT 'main',
                user_turn_number INTEGER NOT NULL,
                requests INTEGER DEFAULT 0,
                input_tokens INTEGER DEFAULT 0,
                output_tokens INTEGER DEFAULT 0,
                total_tokens INTEGER DEFAULT 0,
                input_tokens_details JSON,
                output_tokens_details JSON,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id)
                    REFERENCES agent_sessions(session_id) ON DELETE CASCADE,
                UNIQUE(session_id, branch_id, user_turn_number)
            );
INSERT INTO "turn_usage" VALUES(1,'user 7/ferries','main',1,2,300,40,340,'{"cached_tokens": 100}','{"reasoning_tokens": 10}','2026-02-03 06:00:00');
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
CREATE INDEX idx_structure_session_seq
            ON message_structure(session_id, sequence_number)
        ;
CREATE INDEX idx_structure_branch
            ON message_structure(session_id, branch_id)
        ;
CREATE INDEX idx_structure_turn
            ON message_structure(session_id, branch_id, user_turn_number)
        ;
CREATE INDEX idx_structure_branch_seq
            ON message_structure(session_id, branch_id, sequence_number)
        ;
CREATE INDEX idx_turn_usage_session_turn
            ON turn_usage(session_id, branch_id, user_turn_number)
        ;
COMMIT;
