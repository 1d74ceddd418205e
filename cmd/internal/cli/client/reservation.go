package client

import (
	"context"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// GetReservations reads reservations by name, or all open and future ones
// when names is empty.
func GetReservations(ctx context.Context, c *Client, names []string) ([]*apiv1.Reservation, error) {
	resp, err := ListReservations.Ask(ctx, c, Reads, &apiv1.ListReservationsRequest{Names: names})
	return resp.GetReservations(), err
}

// SetReservation creates or changes a reservation.
func SetReservation(ctx context.Context, c *Client, req *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	resp, err := setReservation.Ask(ctx, c, Changes, req)
	if err != nil {
		err = console.UnknownChange(err, "See berth reservation list.")
	}
	return resp, err
}

// RemoveReservation deletes a reservation.
func RemoveReservation(ctx context.Context, c *Client, name string) error {
	_, err := removeReservation.Ask(ctx, c, Changes, &apiv1.RemoveReservationRequest{Name: name})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	return nil
}

// UpdateJob changes what a job requested.
func UpdateJob(ctx context.Context, c *Client, req *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	resp, err := updateJob.Ask(ctx, c, Changes, req)
	if err != nil {
		err = console.UnknownChange(err, "Repeating this is safe.")
	}
	return resp, err
}
