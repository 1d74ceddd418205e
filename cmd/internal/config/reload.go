package config

// live lists the keys that take effect in a running coordinator when it is
// told to reread its configuration.
func live() map[string]struct{} {
	return map[string]struct{}{
		"scheduling.policy": {}, "scheduling.policies": {}, "scheduling.max_slowdown": {}, "scheduling.overcommit": {}, "scheduling.interval": {}, "scheduling.prices": {},
		"scheduling.fairshare": {}, "scheduling.trading": {}, "scheduling.preempt_every": {}, "scheduling.preempt_after": {}, "scheduling.preempt_wait": {}, "scheduling.sizing": {}, "scheduling.las_queues": {}, "scheduling.tenants": {},
	}
}

// Changes compares a reread configuration with the one a coordinator started
// with and the one in use. taken are the keys whose new values it adopts,
// restart those that it cannot change while it runs; both are in the order of
// the file's sections.
func Changes(started, inUse, again *Loaded[Coordinator]) (taken, restart []string) {
	can := live()
	for _, key := range again.table.keys {
		now := formatValue(again.table.fields[key])
		if _, ok := can[key]; !ok {
			if now != formatValue(started.table.fields[key]) {
				restart = append(restart, key)
			}
		} else if now != formatValue(inUse.table.fields[key]) {
			taken = append(taken, key)
		}
	}
	return taken, restart
}
