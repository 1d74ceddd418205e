// Package servicecmd is what runs until somebody ends it and takes requests: berth service.
package servicecmd
