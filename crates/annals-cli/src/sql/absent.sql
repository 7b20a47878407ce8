main.store_key
(SELECT NULL AS id, NULL AS cipher WHERE 0)

main.v_timers
(SELECT NULL AS thread, NULL AS namespace, NULL AS checkpoint, NULL AS task, NULL AS wake_at WHERE 0)

main.v_kv
(SELECT NULL AS namespace, NULL AS key, NULL AS created_at, NULL AS updated_at, NULL AS expires_at, NULL AS codec, NULL AS data WHERE 0)
