-- name: clock_read
SELECT :now AS now_at
