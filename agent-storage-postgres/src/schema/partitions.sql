-- `@partitions` stands for their number. They have row security and no policy, so that nobody sees or changes a row but by the table
-- itself, whose policies apply then.
DO $$ BEGIN
    FOR n IN 0 .. @partitions - 1 LOOP
        EXECUTE format('CREATE TABLE @.events_%1$s PARTITION OF @.events FOR VALUES WITH (MODULUS @partitions, REMAINDER %1$s)', n);
        EXECUTE format('ALTER TABLE @.events_%s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', n);
    END LOOP;
END $$;
