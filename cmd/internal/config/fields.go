package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// table finds each setting by its key, in the order of the struct.
type table struct {
	keys     []string
	fields   map[string]reflect.Value
	sections map[string][]string // section ("" is the top) -> names in it
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	stringsType  = reflect.TypeFor[[]string]()
	peersType    = reflect.TypeFor[[]Peer]()
)

// tableOf walks the struct that cfg points to.
func tableOf(cfg any) table {
	t := table{fields: map[string]reflect.Value{}, sections: map[string][]string{}}
	t.walk("", reflect.ValueOf(cfg).Elem())
	return t
}

func (t *table) walk(section string, v reflect.Value) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		t.sections[section] = append(t.sections[section], name)
		key := join(section, name)
		if f := v.Field(i); f.Kind() == reflect.Struct {
			t.walk(key, f)
		} else {
			t.keys = append(t.keys, key)
			t.fields[key] = f
		}
	}
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// setText sets a value from the text form that file, environment and flags
// share; it changes nothing on an error.
func setText(v reflect.Value, text string) error {
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("is %.80q, want a time such as 500ms, 3s or 10m", text)
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("is %.80q, want true or false", text)
		}
		v.SetBool(text == "true")
	case v.Kind() == reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != text {
			return fmt.Errorf("is %.80q, want a whole number in decimal", text)
		}
		v.SetInt(n)
	case v.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || strings.Trim(text, "0123456789.") != "" {
			return fmt.Errorf("is %.80q, want a decimal number such as 1.5", text)
		}
		v.SetFloat(f)
	case v.Type() == stringsType:
		v.Set(reflect.ValueOf(splitList(text)))
	case v.Type() == peersType:
		peers := []Peer{}
		for _, item := range splitList(text) {
			id, addr, ok := strings.Cut(item, "=")
			if !ok {
				return fmt.Errorf("has %.80q, want id=host:port,id=host:port", item)
			}
			peers = append(peers, Peer{ID: id, Addr: addr})
		}
		v.Set(reflect.ValueOf(peers))
	case v.Type() == tenantsType:
		tenants := []Tenant{}
		for _, item := range splitList(text) {
			t, err := parseTenant(item)
			if err != nil {
				return err
			}
			tenants = append(tenants, t)
		}
		v.Set(reflect.ValueOf(tenants))
	default:
		// A new kind of field without a reader is a bug.
		panic(fmt.Sprintf("config: no reader for %s", v.Type()))
	}
	return nil
}

func splitList(text string) []string {
	if text == "" {
		return []string{}
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// wanted describes what a value of v's type looks like, for messages.
func wanted(v reflect.Value) string {
	switch {
	case v.Type() == peersType:
		return "a list of {id, addr}"
	case v.Type() == tenantsType:
		return "a list of {name, users, cells}"
	case v.Type() == stringsType:
		return "a list"
	case v.Type() == durationType:
		return "a time such as 3s"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Float64:
		return "a decimal number such as 1.5"
	default:
		return "text"
	}
}

func formatValue(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case string:
		return strconv.Quote(x)
	case []string:
		quoted := make([]string, len(x))
		for i, s := range x {
			quoted[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case []Peer:
		items := make([]string, len(x))
		for i, p := range x {
			items[i] = strconv.Quote(p.ID + "=" + p.Addr)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case []Tenant:
		items := make([]string, len(x))
		for i, t := range x {
			items[i] = strconv.Quote(t.String())
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(x)
	}
}
